#ifndef MOECL_NPU_ROUTING_H
#define MOECL_NPU_ROUTING_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// How int8 rows of moe_init_routing_v2's quant_mode 1 round their halves.
typedef enum moecl_routing_rounding {
  MOECL_ROUTING_TIES_EVEN = 0,
  MOECL_ROUTING_GENERAL_TEMPLATE = 1  ///< away from zero, as the device's general template
} moecl_routing_rounding;

/// npu_moe_init_routing: rows in expert order, without expert counts
typedef struct moecl_moe_init_routing_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor row_idx;
  moecl_tensor expert_idx;
  int64_t active_num;                ///< tokens whose worth of rows is made: min(active_num, N) * K
  moecl_tensor expanded_x;           ///< out
  moecl_tensor expanded_row_idx;     ///< out
  moecl_tensor expanded_expert_idx;  ///< out
} moecl_moe_init_routing_args;
moecl_status moecl_moe_init_routing_defaults(moecl_moe_init_routing_args* args);
moecl_status moecl_moe_init_routing_plan(moecl_stream* stream, moecl_moe_init_routing_args* args,
                                         uint64_t* out_workspace_bytes);
moecl_status moecl_moe_init_routing(moecl_stream* stream, const moecl_moe_init_routing_args* args,
                                    const moecl_call* call, uint32_t num_wait_events,
                                    struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_init_routing_v2: rows of a range of experts in expert order, quantized on the way
typedef struct moecl_moe_init_routing_v2_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor expert_idx;
  moecl_tensor scale;                  ///< optional
  moecl_tensor offset;                 ///< optional
  int64_t active_num;                  ///< most rows that are made; below 1: N * K
  int64_t expert_capacity;             ///< rows of each expert with drop_pad_mode 1
  int64_t expert_num;                  ///< experts
  int64_t drop_pad_mode;               ///< 0 dropless, 1 drop and pad (range of all experts)
  int64_t expert_tokens_num_type;      ///< 0 cumulative, 1 counts, 2 (expert, count) pairs; drop_pad_mode 1: counts
  int32_t expert_tokens_num_flag;      ///< 1: expert_tokens is wanted
  int64_t quant_mode;                  ///< -1 none, 0 static int8, 1 dynamic int8, 2, 3, 9, 16, 17 MX
  moecl_int_list active_expert_range;  ///< [first, end) of the experts; empty: all
  int64_t row_idx_type;                ///< 0 row of each slot, 1 slot of each row (dropless only)
  int32_t rounding;                    ///< moecl_routing_rounding
  moecl_tensor expanded_x;             ///< out
  moecl_tensor expanded_row_idx;       ///< out
  moecl_tensor expert_tokens;          ///< out, with expert_tokens_num_flag
  moecl_tensor expanded_scale;         ///< out, of quant_mode 1, MX, or of -1 with scale
} moecl_moe_init_routing_v2_args;
moecl_status moecl_moe_init_routing_v2_defaults(moecl_moe_init_routing_v2_args* args);
moecl_status moecl_moe_init_routing_v2_plan(moecl_stream* stream, moecl_moe_init_routing_v2_args* args,
                                            uint64_t* out_workspace_bytes);
moecl_status moecl_moe_init_routing_v2(moecl_stream* stream, const moecl_moe_init_routing_v2_args* args,
                                       const moecl_call* call, uint32_t num_wait_events,
                                       struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_compute_expert_tokens: cumulative rows of the experts from sorted ids
typedef struct moecl_moe_compute_expert_tokens_args {
  uint64_t size_bytes;
  moecl_tensor sorted_expert_for_source_row;
  int64_t num_expert;                     ///< experts
  moecl_tensor total_rows_before_expert;  ///< out
} moecl_moe_compute_expert_tokens_args;
moecl_status moecl_moe_compute_expert_tokens_defaults(moecl_moe_compute_expert_tokens_args* args);
moecl_status moecl_moe_compute_expert_tokens_plan(moecl_stream* stream, moecl_moe_compute_expert_tokens_args* args,
                                                  uint64_t* out_workspace_bytes);
moecl_status moecl_moe_compute_expert_tokens(moecl_stream* stream, const moecl_moe_compute_expert_tokens_args* args,
                                             const moecl_call* call, uint32_t num_wait_events,
                                             struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_token_permute: tokens sorted by index
typedef struct moecl_moe_token_permute_args {
  uint64_t size_bytes;
  moecl_tensor tokens;
  moecl_tensor indices;
  int64_t num_out_tokens;        ///< rows kept; MOECL_NONE or 0: all, negative: so many cut off
  int32_t padded_mode;           ///< only 0
  moecl_tensor permuted_tokens;  ///< out
  moecl_tensor sorted_indices;   ///< out
} moecl_moe_token_permute_args;
moecl_status moecl_moe_token_permute_defaults(moecl_moe_token_permute_args* args);
moecl_status moecl_moe_token_permute_plan(moecl_stream* stream, moecl_moe_token_permute_args* args,
                                          uint64_t* out_workspace_bytes);
moecl_status moecl_moe_token_permute(moecl_stream* stream, const moecl_moe_token_permute_args* args,
                                     const moecl_call* call, uint32_t num_wait_events,
                                     struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_token_unpermute: weighted sum of each token's rows, in token order
typedef struct moecl_moe_token_unpermute_args {
  uint64_t size_bytes;
  moecl_tensor permuted_tokens;
  moecl_tensor sorted_indices;
  moecl_tensor probs;              ///< optional
  int32_t padded_mode;             ///< 1: rows are added to the tokens that sorted_indices names
  moecl_int_list restore_shape;    ///< [N, H] of padded_mode
  moecl_tensor unpermuted_tokens;  ///< out
} moecl_moe_token_unpermute_args;
moecl_status moecl_moe_token_unpermute_defaults(moecl_moe_token_unpermute_args* args);
moecl_status moecl_moe_token_unpermute_plan(moecl_stream* stream, moecl_moe_token_unpermute_args* args,
                                            uint64_t* out_workspace_bytes);
moecl_status moecl_moe_token_unpermute(moecl_stream* stream, const moecl_moe_token_unpermute_args* args,
                                       const moecl_call* call, uint32_t num_wait_events,
                                       struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_re_routing: rows by rank, then expert, put by expert, then rank
typedef struct moecl_moe_re_routing_args {
  uint64_t size_bytes;
  moecl_tensor tokens;
  moecl_tensor expert_token_num_per_rank;
  moecl_tensor per_token_scales;          ///< optional
  int64_t expert_token_num_type;          ///< 1: counts
  int64_t idx_type;                       ///< 0: input row of each output row
  moecl_tensor permute_tokens;            ///< out
  moecl_tensor permute_per_token_scales;  ///< out, with per_token_scales
  moecl_tensor permute_token_idx;         ///< out
  moecl_tensor expert_token_num;          ///< out
} moecl_moe_re_routing_args;
moecl_status moecl_moe_re_routing_defaults(moecl_moe_re_routing_args* args);
moecl_status moecl_moe_re_routing_plan(moecl_stream* stream, moecl_moe_re_routing_args* args,
                                       uint64_t* out_workspace_bytes);
moecl_status moecl_moe_re_routing(moecl_stream* stream, const moecl_moe_re_routing_args* args, const moecl_call* call,
                                  uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                  struct _cl_event** out_event);

/// npu_moe_finalize_routing: weighted sum of each token's rows with expert biases and two skips
typedef struct moecl_moe_finalize_routing_args {
  uint64_t size_bytes;
  moecl_tensor expanded_permuted_rows;
  moecl_tensor skip1;   ///< optional
  moecl_tensor skip2;   ///< optional
  moecl_tensor bias;    ///< optional
  moecl_tensor scales;  ///< optional
  moecl_tensor expanded_src_to_dst_row;
  moecl_tensor export_for_source_row;  ///< optional
  int64_t drop_pad_mode;               ///< 0, 1 column layout, 2, 3 row layout; 1, 3 drop and pad
  moecl_tensor out;                    ///< out
} moecl_moe_finalize_routing_args;
moecl_status moecl_moe_finalize_routing_defaults(moecl_moe_finalize_routing_args* args);
moecl_status moecl_moe_finalize_routing_plan(moecl_stream* stream, moecl_moe_finalize_routing_args* args,
                                             uint64_t* out_workspace_bytes);
moecl_status moecl_moe_finalize_routing(moecl_stream* stream, const moecl_moe_finalize_routing_args* args,
                                        const moecl_call* call, uint32_t num_wait_events,
                                        struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
