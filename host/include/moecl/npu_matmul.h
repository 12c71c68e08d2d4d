#ifndef MOECL_NPU_MATMUL_H
#define MOECL_NPU_MATMUL_H
// Written by `moecl op --header matmul`; a test compares it.
#include <moecl/npu.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_quant_matmul: i8 x i8 or int4, dequantized or requantized
typedef struct moecl_quant_matmul_args {
  uint64_t size_bytes;
  /// [..., M, K] i8
  moecl_tensor x1;
  /// [K, N] i8, or int4 in i32
  moecl_tensor x2;
  /// [1] or [N]; f32, f16, bf16 or 64-bit; not used by an i32 output
  moecl_tensor scale;
  /// optional [1] or [N] f32, of an i8 output
  moecl_tensor offset;
  /// optional [M] f32
  moecl_tensor pertoken_scale;
  /// optional [N]: i32 added to the sums, f32, f16 or bf16 added after the scales
  moecl_tensor bias;
  /// i8 if none, f16, bf16, f32, or i32: the bare sums; a moecl_dtype, 0: none
  int32_t output_dtype;
  /// out: [..., M, N]
  moecl_tensor y;
} moecl_quant_matmul_args;
moecl_status moecl_quant_matmul_defaults(moecl_quant_matmul_args* args);
moecl_status moecl_quant_matmul_plan(
    moecl_stream* stream, moecl_quant_matmul_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_quant_matmul(
    moecl_stream* stream, const moecl_quant_matmul_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_grouped_matmul: for each group its rows times its weights
typedef struct moecl_grouped_matmul_args {
  uint64_t size_bytes;
  /// [M, K] f32, f16, bf16, i8 or u8: codes, e2m1 two to a byte along K; or a list
  moecl_tensor_list x;
  /// [E, K, N] or a list of [K, N]; x's dtype, i8, int4 in i32, or u8: codes, e2m1 two to a byte along N
  moecl_tensor_list weight;
  /// optional [E, N] or a list of [N]; f32, f16, bf16, or i32 beside integer weights
  moecl_tensor_list bias;
  /// optional [E, N], [E, 1, N], [E, G, N] or a list; of integer x. Of codes u8 [E, ceil(K / 64), N, 2]
  moecl_tensor_list scale;
  /// optional [E, N] f32 or a list; of an i8 output
  moecl_tensor_list offset;
  /// optional [E, N], [E, G, N] or a list; of float x
  moecl_tensor_list antiquant_scale;
  /// optional, as antiquant_scale
  moecl_tensor_list antiquant_offset;
  /// optional [M] f32, one for each x. Of codes u8 [M, ceil(K / 64), 2]
  moecl_tensor_list per_token_scale;
  /// optional i64 or i32 [E] or [n, 2]; needed for the groups of one x
  moecl_tensor group_list;
  /// 0, 1: a y for each group; 2, 3: one y
  int64_t split_item;
  /// -1 x and weight pair up, 0 groups of rows, 2 groups of K
  int64_t group_type;
  /// 0 cumulative, 1 counts, 2 (group, count) pairs
  int64_t group_list_type;
  /// 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu
  int64_t act_type;
  /// x's if none; of i8 x also f16, bf16, f32 and i32; a moecl_dtype, 0: none
  int32_t output_dtype;
  /// what codes of x mean: 0 none, 1 e4m3, 2 e5m2, 3 e2m1, 4 float8_e8m0fnu
  int32_t x_dtype;
  /// what codes of weight mean: 0 none, 1 e4m3, 2 e5m2, 3 e2m1, 4 float8_e8m0fnu
  int32_t weight_dtype;
  /// what codes of scale mean: 0 none, 1 e4m3, 2 e5m2, 3 e2m1, 4 float8_e8m0fnu
  int32_t scale_dtype;
  /// what codes of per_token_scale mean: 0 none, 1 e4m3, 2 e5m2, 3 e2m1, 4 float8_e8m0fnu
  int32_t per_token_scale_dtype;
  /// out: [M, N] each; [E, M, N] with group_type 2
  moecl_tensor_list y;
} moecl_grouped_matmul_args;
moecl_status moecl_grouped_matmul_defaults(moecl_grouped_matmul_args* args);
moecl_status moecl_grouped_matmul_plan(
    moecl_stream* stream, moecl_grouped_matmul_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul(
    moecl_stream* stream, const moecl_grouped_matmul_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_grouped_matmul_swiglu_quant: grouped product, swish of its gate times up, int8 rows
typedef struct moecl_grouped_matmul_swiglu_quant_args {
  uint64_t size_bytes;
  /// [M, K] i8
  moecl_tensor x;
  /// [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
  moecl_tensor weight;
  /// [E] i64 or i32, cumulative
  moecl_tensor group_list;
  /// [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
  moecl_tensor weight_scale;
  /// [M] f32
  moecl_tensor x_scale;
  /// optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
  moecl_tensor bias;
  /// how rows are quantized: 0 reciprocal, 1 double_rounding
  int32_t rounding;
  /// out: [M, N / 2] i8
  moecl_tensor output;
  /// out: [M] f32
  moecl_tensor output_scale;
} moecl_grouped_matmul_swiglu_quant_args;
moecl_status moecl_grouped_matmul_swiglu_quant_defaults(moecl_grouped_matmul_swiglu_quant_args* args);
moecl_status moecl_grouped_matmul_swiglu_quant_plan(
    moecl_stream* stream, moecl_grouped_matmul_swiglu_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_swiglu_quant(
    moecl_stream* stream, const moecl_grouped_matmul_swiglu_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_grouped_matmul_swiglu_quant_v2: the same with lists of weights, counts and a smooth scale
typedef struct moecl_grouped_matmul_swiglu_quant_v2_args {
  uint64_t size_bytes;
  /// [M, K] i8
  moecl_tensor x;
  /// [E, K, N] i8 or int4 in i32, or a list of [K, N]
  moecl_tensor_list weight;
  /// [E, N], [E, 1, N] or [E, G, N], or a list
  moecl_tensor_list weight_scale;
  /// [M] f32
  moecl_tensor x_scale;
  /// [E] i64 or i32
  moecl_tensor group_list;
  /// optional [E, N / 2] f32
  moecl_tensor smooth_scale;
  /// optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
  moecl_tensor_list weight_assist_matrix;
  /// optional [E, N] i32, of i8 weights
  moecl_tensor bias;
  /// 0 a scale for each channel, 1 for each group of K
  int64_t dequant_mode;
  /// 0: a scale for each row
  int64_t quant_mode;
  /// 0 cumulative, 1 counts
  int64_t group_list_type;
  /// how rows are quantized: 0 reciprocal, 1 double_rounding
  int32_t rounding;
  /// out: [M, N / 2] i8
  moecl_tensor output;
  /// out: [M] f32
  moecl_tensor output_scale;
} moecl_grouped_matmul_swiglu_quant_v2_args;
moecl_status moecl_grouped_matmul_swiglu_quant_v2_defaults(moecl_grouped_matmul_swiglu_quant_v2_args* args);
moecl_status moecl_grouped_matmul_swiglu_quant_v2_plan(
    moecl_stream* stream, moecl_grouped_matmul_swiglu_quant_v2_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_swiglu_quant_v2(
    moecl_stream* stream, const moecl_grouped_matmul_swiglu_quant_v2_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// _C_ascend.grouped_matmul_swiglu_quant: vllm-ascend's form: the activation may be clamped
typedef struct moecl_c_ascend_grouped_matmul_swiglu_quant_args {
  uint64_t size_bytes;
  /// [M, K] i8
  moecl_tensor x;
  /// [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
  moecl_tensor weight;
  /// optional assist matrix of int4 weights, [E, N] f32, f16 or bf16
  moecl_tensor bias;
  /// [E] i64 or i32, cumulative
  moecl_tensor group_list;
  /// [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
  moecl_tensor weight_scale;
  /// [M] f32
  moecl_tensor x_scale;
  /// above 0: gate at most this, up within plus and minus this
  double swiglu_limit;
  /// how rows are quantized: 0 reciprocal, 1 double_rounding
  int32_t rounding;
  /// out: [M, N / 2] i8
  moecl_tensor output;
  /// out: [M] f32
  moecl_tensor output_scale;
} moecl_c_ascend_grouped_matmul_swiglu_quant_args;
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant_defaults(moecl_c_ascend_grouped_matmul_swiglu_quant_args* args);
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant_plan(
    moecl_stream* stream, moecl_c_ascend_grouped_matmul_swiglu_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant(
    moecl_stream* stream, const moecl_c_ascend_grouped_matmul_swiglu_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_grouped_matmul_finalize_routing: grouped product whose rows are added to their tokens
typedef struct moecl_grouped_matmul_finalize_routing_args {
  uint64_t size_bytes;
  /// [M, K] i8
  moecl_tensor x;
  /// [E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]
  moecl_tensor weight;
  /// [E] i64 or i32
  moecl_tensor group_list;
  /// [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
  moecl_tensor scale;
  /// optional [E, N]; of int4 weights the assist matrix
  moecl_tensor bias;
  /// optional [M] f32
  moecl_tensor pertoken_scale;
  /// optional [n, N] f32, f16 or bf16
  moecl_tensor shared_input;
  /// optional [M] f32, f16 or bf16; 1 without
  moecl_tensor logit;
  /// [M] i64 or i32 of [0, output_bs)
  moecl_tensor row_index;
  /// f32 if none, f16 or bf16; a moecl_dtype, 0: none
  int32_t dtype;
  /// multiplies shared_input
  double shared_input_weight;
  /// row of y that shared_input starts at
  int64_t shared_input_offset;
  /// rows of y; 0: M
  int64_t output_bs;
  /// 0 cumulative, 1 counts
  int64_t group_list_type;
  /// out: [output_bs, N], all of it
  moecl_tensor y;
} moecl_grouped_matmul_finalize_routing_args;
moecl_status moecl_grouped_matmul_finalize_routing_defaults(moecl_grouped_matmul_finalize_routing_args* args);
moecl_status moecl_grouped_matmul_finalize_routing_plan(
    moecl_stream* stream, moecl_grouped_matmul_finalize_routing_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_finalize_routing(
    moecl_stream* stream, const moecl_grouped_matmul_finalize_routing_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
