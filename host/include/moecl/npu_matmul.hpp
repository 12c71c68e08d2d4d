#pragma once
#include <moecl/npu.hpp>

#include <optional>

/// Matrix products with weights in the operators' layouts. M rows, K summed, N columns, E experts, G groups along K.
///
/// Weights are one [E, K, N] or a list of E [K, N], with any strides, so a transposed matrix needs no copy. An i32 word
/// of weights holds eight int4, element 0 in the lowest bits, along N ([K, N / 8]) or along K ([K / 8, N]). 64-bit
/// scales hold an f32 in their low half. int8 x int8 is summed exactly, in int32; other sums are f32.
namespace moecl::npu {

/// y = (x1 x x2 + int32 bias) * scale * pertoken_scale + float bias. An i8 y adds offset and is rounded, ties to even.
///
/// Source: npu_quant_matmul
struct QuantMatmulArgs {
  TensorView x1;                      ///< Shape: [..., M, K] i8
  TensorView x2;                      ///< Shape: [K, N] i8, or int4 in i32
  TensorView scale;                   ///< Shape: [1] or [N], f32, f16, bf16 or 64-bit; not used by an i32 output
  TensorView offset;                  ///< optional, with an i8 output. Shape: [1] or [N] f32
  TensorView pertoken_scale;          ///< optional. Shape: [M] f32
  TensorView bias;                    ///< optional. Shape: [N] i32, f32, f16 or bf16
  std::optional<DType> output_dtype;  ///< i8 (default), f16, bf16, f32, or i32: the sums themselves
  TensorView y;                       ///< out. Shape: [..., M, N]
};
void infer(QuantMatmulArgs& args);
std::uint64_t workspace_bytes(const QuantMatmulArgs& args, const Device& device);
OperatorCost cost(const QuantMatmulArgs& args);
void quant_matmul(StreamView stream, const QuantMatmulArgs& args, const Call& how = {});

/// The format of u8 codes.
enum class CodeType : std::uint8_t { none, e4m3, e5m2, e2m1, float8_e8m0fnu };

/// Multiplies the rows of each group (or its part of K) by the weights of the group. Operands:
///   float     x and weight of one float type
///   weights   x float, weights i8 or int4: (weight + antiquant_offset) * antiquant_scale, rounded to x's dtype
///   integers  x i8, weights i8 or int4: sums * scale * per_token_scale. For int4 a float bias is the assist matrix
///             of the NPU's two int4 products: ((x - 8) x weight * scale + bias) * per_token_scale
///   OCP MX    codes of x_dtype and weight_dtype (e4m3, e5m2 or e2m1) with e8m0 scales for blocks of 32 along K, stored
///             in pairs; only one x, one weight and groups of rows
/// Source: npu_grouped_matmul
struct GroupedMatmulArgs {
  TensorList x;                      ///< [M, K], or a list with one for each group
  TensorList weight;                 ///< [E, K, N] or a list, see above; one [K, N] with group_type 2
  TensorList bias;                   ///< optional. [E, N] or a list of [N]; f32, f16, bf16, or i32 with integer weights
  TensorList scale;                  ///< with integers. [E, N], [E, 1, N] or [E, G, N], or a list of [N] or [G, N]
  TensorList offset;                 ///< optional, with an i8 output. Shapes as scale, f32
  TensorList antiquant_scale;        ///< with integer weights and float x. Shapes as scale
  TensorList antiquant_offset;       ///< optional. Shapes as antiquant_scale
  TensorList per_token_scale;        ///< optional, with integers. [M] f32, a tensor for each x
  TensorView group_list;             ///< i64 or i32; not with group_type -1 or a list of x. See group_list_type
  std::int64_t split_item = 0;       ///< 0, 1: a y for each group; 2, 3: one y
  std::int64_t group_type = -1;      ///< -1: x[i] times weight[i]; 0: groups of rows; 2: groups along K
  std::int64_t group_list_type = 0;  ///< 0 cumulative [E], 1 counts [E], 2 pairs (group, count) [n, 2]
  std::int64_t act_type = 0;         ///< 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu; needs per_token_scale
  std::optional<DType> output_dtype;  ///< with integers: i8, f16, bf16, f32, or i32: the sums. Default: x's
  CodeType x_dtype = CodeType::none;  ///< with MX codes in u8 x: e4m3, e5m2 or e2m1; then all four are needed
  CodeType weight_dtype = CodeType::none;
  CodeType scale_dtype = CodeType::none;
  CodeType per_token_scale_dtype = CodeType::none;
  TensorList y;  ///< out. [M, N] each; group_type 2: [E, M, N]. Rows past the sum of the groups are not written
};
void infer(GroupedMatmulArgs& args);
std::uint64_t workspace_bytes(const GroupedMatmulArgs& args, const Device& device);
OperatorCost cost(const GroupedMatmulArgs& args);
void grouped_matmul(StreamView stream, const GroupedMatmulArgs& args, const Call& how = {});

/// How rows are quantized after the activation; see quantize_rows.
enum class SwigluQuantRounding : std::uint8_t {
  reciprocal,      ///< x * (127 / amax), scale 1 / (127 / amax)
  double_rounding  ///< x * (1 / (amax / 127)) to f16, then to int8; scale amax / 127
};

/// (x x weight) * weight_scale * x_scale has columns [gate | up]; silu(gate) * up is quantized to int8 row by row.
///
/// Source: npu_grouped_matmul_swiglu_quant
struct GroupedMatmulSwigluQuantArgs {
  TensorView x;             ///< Shape: [M, K] i8
  TensorView weight;        ///< Shape: [E, K, N] i8, or int4 in i32
  TensorView group_list;    ///< Shape: [E] i64 or i32, cumulative
  TensorView weight_scale;  ///< Shape: [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
  TensorView x_scale;       ///< Shape: [M] f32
  TensorView bias;          ///< optional, with int4 weights: the assist matrix [E, N], as in grouped_matmul
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output;        ///< out. Shape: [M, N / 2] i8
  TensorView output_scale;  ///< out. Shape: [M] f32
};
void infer(GroupedMatmulSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const GroupedMatmulSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const GroupedMatmulSwigluQuantArgs& args);
void grouped_matmul_swiglu_quant(StreamView stream, const GroupedMatmulSwigluQuantArgs& args, const Call& how = {});

/// The second version also takes lists of weights, counts as group list, and a smooth scale before the quantization.
///
/// Source: npu_grouped_matmul_swiglu_quant_v2
struct GroupedMatmulSwigluQuantV2Args {
  TensorView x;                      ///< Shape: [M, K] i8
  TensorList weight;                 ///< [E, K, N] i8, or int4 in i32; or a list of E [K, N]
  TensorList weight_scale;           ///< [E, N], [E, 1, N] or [E, G, N], or a list
  TensorView x_scale;                ///< Shape: [M] f32
  TensorView group_list;             ///< Shape: [E] i64 or i32
  TensorView smooth_scale;           ///< optional. Shape: [E, N / 2] f32, multiplies before the quantization
  TensorList weight_assist_matrix;   ///< optional, with int4 weights. [E, N] f32, as in grouped_matmul
  TensorView bias;                   ///< optional, with i8 weights. Shape: [E, N] i32
  std::int64_t dequant_mode = 0;     ///< 0 a scale for each channel, 1 for each group of K
  std::int64_t quant_mode = 0;       ///< 0: a scale for each row
  std::int64_t group_list_type = 0;  ///< 0 cumulative, 1 counts
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output;        ///< out. Shape: [M, N / 2] i8
  TensorView output_scale;  ///< out. Shape: [M] f32
};
void infer(GroupedMatmulSwigluQuantV2Args& args);
std::uint64_t workspace_bytes(const GroupedMatmulSwigluQuantV2Args& args, const Device& device);
OperatorCost cost(const GroupedMatmulSwigluQuantV2Args& args);
void grouped_matmul_swiglu_quant_v2(StreamView stream, const GroupedMatmulSwigluQuantV2Args& args,
                                    const Call& how = {});

/// vllm-ascend's own form: the activation may be clamped.
///
/// Source: torch.ops._C_ascend.grouped_matmul_swiglu_quant
struct CAscendGroupedMatmulSwigluQuantArgs {
  TensorView x;             ///< Shape: [M, K] i8
  TensorView weight;        ///< Shape: [E, K, N] i8, or int4 in i32
  TensorView bias;          ///< optional, with int4 weights: the assist matrix [E, N]
  TensorView group_list;    ///< Shape: [E] i64 or i32, cumulative
  TensorView weight_scale;  ///< Shape: [E, N], [E, 1, N] or [E, G, N]
  TensorView x_scale;       ///< Shape: [M] f32
  double swiglu_limit = 0;  ///< above 0: the activation takes min(gate, limit) and clamp(up, -limit, limit)
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output;        ///< out. Shape: [M, N / 2] i8
  TensorView output_scale;  ///< out. Shape: [M] f32
};
void infer(CAscendGroupedMatmulSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const CAscendGroupedMatmulSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const CAscendGroupedMatmulSwigluQuantArgs& args);
void c_ascend_grouped_matmul_swiglu_quant(StreamView stream, const CAscendGroupedMatmulSwigluQuantArgs& args,
                                          const Call& how = {});

/// y[t] = sum of logit[m] * (row m of the grouped product) over the rows m with row_index[m] == t, in ascending m, +
/// shared_input_weight * shared_input[t - shared_input_offset] if shared_input has that row.
///
/// Source: npu_grouped_matmul_finalize_routing
struct GroupedMatmulFinalizeRoutingArgs {
  TensorView x;                          ///< Shape: [M, K] i8
  TensorView weight;                     ///< Shape: [E, K, N] i8, or int4 in i32
  TensorView group_list;                 ///< Shape: [E] i64 or i32
  TensorView scale;                      ///< Shape: [E, N], [E, 1, N] or [E, G, N]
  TensorView bias;                       ///< optional. Shape: [E, N]; with int4 weights the assist matrix
  TensorView pertoken_scale;             ///< optional. Shape: [M] f32
  TensorView shared_input;               ///< optional. Shape: [n, N] f32, f16 or bf16
  TensorView logit;                      ///< optional. Shape: [M] f32, f16 or bf16; absent: 1
  TensorView row_index;                  ///< Shape: [M] i64 or i32. Range: [0, output_bs)
  std::optional<DType> dtype;            ///< f32 (default), f16 or bf16
  double shared_input_weight = 1;        ///< multiplies shared_input
  std::int64_t shared_input_offset = 0;  ///< the row of y that shared_input's row 0 is added to
  std::int64_t output_bs = 0;            ///< rows of y; 0: M
  std::int64_t group_list_type = 1;      ///< 0 cumulative, 1 counts
  TensorView y;                          ///< out. Shape: [output_bs, N]; all of it is written
};
void infer(GroupedMatmulFinalizeRoutingArgs& args);
std::uint64_t workspace_bytes(const GroupedMatmulFinalizeRoutingArgs& args, const Device& device);
OperatorCost cost(const GroupedMatmulFinalizeRoutingArgs& args);
void grouped_matmul_finalize_routing(StreamView stream, const GroupedMatmulFinalizeRoutingArgs& args,
                                     const Call& how = {});

}  // namespace moecl::npu
