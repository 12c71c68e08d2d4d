#ifndef MOECL_NPU_ROUTING_H
#define MOECL_NPU_ROUTING_H
// Written by `moecl op --header routing`; a test compares it.
#include <moecl/npu.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_moe_init_routing: rows in expert order, without expert counts
typedef struct moecl_moe_init_routing_args {
  uint64_t size_bytes;
  /// [N, H] f32, f16 or bf16
  moecl_tensor x;
  /// [N, K] i32, each of [0, N * K) once, column-major
  moecl_tensor row_idx;
  /// [N, K] i32 of [0, 2^24)
  moecl_tensor expert_idx;
  /// tokens whose worth of rows is made: min(active_num, N) * K
  int64_t active_num;
  /// out: [min(active_num, N) * K, H], x's dtype
  moecl_tensor expanded_x;
  /// out: [N * K] i32
  moecl_tensor expanded_row_idx;
  /// out: [N * K] i32, ascending
  moecl_tensor expanded_expert_idx;
} moecl_moe_init_routing_args;
moecl_status moecl_moe_init_routing_defaults(moecl_moe_init_routing_args* args);
moecl_status moecl_moe_init_routing_plan(
    moecl_stream* stream, moecl_moe_init_routing_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_init_routing(
    moecl_stream* stream, const moecl_moe_init_routing_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_init_routing_v2: rows of a range of experts in expert order, quantized on the way
typedef struct moecl_moe_init_routing_v2_args {
  uint64_t size_bytes;
  /// [N, H] f32, f16 or bf16, or i8 and u8: codes
  moecl_tensor x;
  /// [N, K] i32
  moecl_tensor expert_idx;
  /// optional f32: [N], of codes also u8 [N, S] or [N, S / 2, 2] (quant_mode -1), [1] (0, 7), [range, H] or [1, H] (1,
  /// 13)
  moecl_tensor scale;
  /// optional f32: [1] (quant_mode 0; 7 does not read it)
  moecl_tensor offset;
  /// most rows that are made; below 1: N * K
  int64_t active_num;
  /// rows of each expert with drop_pad_mode 1
  int64_t expert_capacity;
  /// experts
  int64_t expert_num;
  /// 0 dropless, 1 drop and pad (range of all experts)
  int64_t drop_pad_mode;
  /// 0 cumulative, 1 counts, 2 (expert, count) pairs; always counts with drop_pad_mode 1
  int64_t expert_tokens_num_type;
  /// whether expert_tokens is written; 1 or 0
  int32_t expert_tokens_num_flag;
  /// -1 none, 0 static int8, 1 int8, 13 int4; MX: 2, 16 e5m2, 3, 17 e4m3, 9 e2m1; by 128: 11 e5m2, 12 e4m3, by powers
  /// of two 4, 14 and 5, 15; HiF8: 6 x, 7 x * scale, 8 by row; 14 on: amax >= 1e-4
  int64_t quant_mode;
  /// [first, end) of the experts; empty: all
  moecl_int_list active_expert_range;
  /// 0 row of each slot, 1 slot of each row (dropless only)
  int64_t row_idx_type;
  /// how quant_mode 1 rounds halves: 0 ties_even, 1 general_template
  int32_t rounding;
  /// out: [rows, H] or [E, capacity, H], x's dtype, i8, or u8: other codes, of fp4 and int4 half of H
  moecl_tensor expanded_x;
  /// out: [N * K] i32
  moecl_tensor expanded_row_idx;
  /// out: [range] or [expert_num, 2] i64
  moecl_tensor expert_tokens;
  /// out: [rows] f32; MX: [rows, 2 * ceil(H / 64)] u8, e8m0; by 128: [rows, ceil(H / 128)] f32, of 11 and 12 [rows,
  /// ceil(H / 256), 2]
  moecl_tensor expanded_scale;
} moecl_moe_init_routing_v2_args;
moecl_status moecl_moe_init_routing_v2_defaults(moecl_moe_init_routing_v2_args* args);
moecl_status moecl_moe_init_routing_v2_plan(
    moecl_stream* stream, moecl_moe_init_routing_v2_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_init_routing_v2(
    moecl_stream* stream, const moecl_moe_init_routing_v2_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_compute_expert_tokens: cumulative rows of the experts from sorted ids
typedef struct moecl_moe_compute_expert_tokens_args {
  uint64_t size_bytes;
  /// [S] i32, ascending
  moecl_tensor sorted_expert_for_source_row;
  /// experts
  int64_t num_expert;
  /// out: [num_expert] i32
  moecl_tensor total_rows_before_expert;
} moecl_moe_compute_expert_tokens_args;
moecl_status moecl_moe_compute_expert_tokens_defaults(moecl_moe_compute_expert_tokens_args* args);
moecl_status moecl_moe_compute_expert_tokens_plan(
    moecl_stream* stream, moecl_moe_compute_expert_tokens_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_compute_expert_tokens(
    moecl_stream* stream, const moecl_moe_compute_expert_tokens_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_token_permute: tokens sorted by index
typedef struct moecl_moe_token_permute_args {
  uint64_t size_bytes;
  /// [N, H] f32, f16, bf16, or i8 and u8: codes
  moecl_tensor tokens;
  /// [N] or [N, K], i32 or i64 of [0, 2^24)
  moecl_tensor indices;
  /// rows kept; none or 0: all, negative: so many cut off; MOECL_NONE: none
  int64_t num_out_tokens;
  /// false; 1 or 0
  int32_t padded_mode;
  /// out: [rows, H], tokens' dtype
  moecl_tensor permuted_tokens;
  /// out: [N * K] i32: the row of each slot
  moecl_tensor sorted_indices;
} moecl_moe_token_permute_args;
moecl_status moecl_moe_token_permute_defaults(moecl_moe_token_permute_args* args);
moecl_status moecl_moe_token_permute_plan(
    moecl_stream* stream, moecl_moe_token_permute_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_token_permute(
    moecl_stream* stream, const moecl_moe_token_permute_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_token_unpermute: weighted sum of each token's rows, in token order
typedef struct moecl_moe_token_unpermute_args {
  uint64_t size_bytes;
  /// [R, H] f32, f16 or bf16
  moecl_tensor permuted_tokens;
  /// [N * K] i32; padded: [R], the token of each row
  moecl_tensor sorted_indices;
  /// optional [N, K] f32, f16 or bf16; padded: R elements
  moecl_tensor probs;
  /// rows are added to the tokens that sorted_indices names; 1 or 0
  int32_t padded_mode;
  /// [N, H] of padded_mode
  moecl_int_list restore_shape;
  /// out: [N, H], permuted_tokens' dtype
  moecl_tensor unpermuted_tokens;
} moecl_moe_token_unpermute_args;
moecl_status moecl_moe_token_unpermute_defaults(moecl_moe_token_unpermute_args* args);
moecl_status moecl_moe_token_unpermute_plan(
    moecl_stream* stream, moecl_moe_token_unpermute_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_token_unpermute(
    moecl_stream* stream, const moecl_moe_token_unpermute_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_re_routing: rows by rank, then expert, put by expert, then rank
typedef struct moecl_moe_re_routing_args {
  uint64_t size_bytes;
  /// [A, H] f32, f16, bf16, or i8 and u8: codes
  moecl_tensor tokens;
  /// [R, E] i32 or i64, sum A
  moecl_tensor expert_token_num_per_rank;
  /// optional [A] f32
  moecl_tensor per_token_scales;
  /// 1: counts
  int64_t expert_token_num_type;
  /// 0: input row of each output row
  int64_t idx_type;
  /// out: [A, H], tokens' dtype
  moecl_tensor permute_tokens;
  /// out: [A] f32
  moecl_tensor permute_per_token_scales;
  /// out: [A] i32
  moecl_tensor permute_token_idx;
  /// out: [E], dtype of expert_token_num_per_rank
  moecl_tensor expert_token_num;
} moecl_moe_re_routing_args;
moecl_status moecl_moe_re_routing_defaults(moecl_moe_re_routing_args* args);
moecl_status moecl_moe_re_routing_plan(
    moecl_stream* stream, moecl_moe_re_routing_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_re_routing(
    moecl_stream* stream, const moecl_moe_re_routing_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_finalize_routing: weighted sum of each token's rows with expert biases and two skips
typedef struct moecl_moe_finalize_routing_args {
  uint64_t size_bytes;
  /// [R, H] or [E, C, H], f32, f16 or bf16
  moecl_tensor expanded_permuted_rows;
  /// optional [N, H], the rows' dtype
  moecl_tensor skip1;
  /// optional [N, H], needs skip1
  moecl_tensor skip2;
  /// optional [E, H], the rows' dtype
  moecl_tensor bias;
  /// optional [N, K] f32, f16 or bf16; absent: 1, K = 1
  moecl_tensor scales;
  /// [N * K] i32; modes 1 and 3: -1 is dropped
  moecl_tensor expanded_src_to_dst_row;
  /// optional [N, K] i32: experts, needed by bias
  moecl_tensor export_for_source_row;
  /// 0, 1 column layout, 2, 3 row layout; 1, 3 drop and pad
  int64_t drop_pad_mode;
  /// out: [N, H], the rows' dtype
  moecl_tensor out;
} moecl_moe_finalize_routing_args;
moecl_status moecl_moe_finalize_routing_defaults(moecl_moe_finalize_routing_args* args);
moecl_status moecl_moe_finalize_routing_plan(
    moecl_stream* stream, moecl_moe_finalize_routing_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_finalize_routing(
    moecl_stream* stream, const moecl_moe_finalize_routing_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
