#pragma once
#include <moecl/npu.hpp>

#include <optional>

/// Products with weights as the operators bring them. M rows, K summed, N columns, E experts, G groups along K.
///
/// Weights are [E, K, N], or a list of E [K, N]; any strides, so a transposed matrix needs no copy. i32 weights have
/// eight int4 in a word, element 0 in the lowest bits, along N ([K, N / 8]) or along K ([K / 8, N]). Scales of 64 bits
/// hold f32 in their low half. int8 x int8 is exact up to its int32 sum; other sums are f32.
namespace moecl::npu {

/// y = (x1 x x2 + an int32 bias) * scale * pertoken_scale + a float bias; int8: + offset, rounded, halves to even.
///
/// Source: npu_quant_matmul
struct QuantMatmulArgs {
  TensorView x1;                      ///< Shape: [..., M, K] i8
  TensorView x2;                      ///< Shape: [K, N] i8, or int4 in i32
  TensorView scale;                   ///< Shape: [1] or [N], f32, f16, bf16 or 64-bit; not used by an i32 output
  TensorView offset;                  ///< optional, of an i8 output. Shape: [1] or [N] f32
  TensorView pertoken_scale;          ///< optional. Shape: [M] f32
  TensorView bias;                    ///< optional. Shape: [N] i32, f32, f16 or bf16
  std::optional<DType> output_dtype;  ///< i8 (default), f16, bf16, f32, or i32: the bare sums
  TensorView y;                       ///< out. Shape: [..., M, N]
};
void infer(QuantMatmulArgs& args);
std::uint64_t workspace_bytes(const QuantMatmulArgs& args, const Device& device);
OperatorCost cost(const QuantMatmulArgs& args);
void quant_matmul(StreamView stream, const QuantMatmulArgs& args, const Call& how = {});

/// What u8 codes mean.
enum class CodeType : std::uint8_t { none, e4m3, e5m2, e2m1, float8_e8m0fnu };

/// For each group, its rows (or its part of K) times its weights.
///
/// x and weight are of one float type; or x is float and weight i8 or int4, which becomes
/// (weight + antiquant_offset) * antiquant_scale rounded to x's dtype; or both are integers: sums * scale *
/// per_token_scale. For i8 x with int4 weights a float bias is the assist matrix of the device's two int4 products:
/// ((x - 8) x weight * scale + bias) * per_token_scale. Or both are OCP MX codes (x_dtype, weight_dtype e4m3, e5m2 or
/// e2m1) with e8m0 scales of blocks of 32 along K, in pairs: one x, one weight, groups of rows. Source:
/// npu_grouped_matmul
struct GroupedMatmulArgs {
  TensorList x;                  ///< [M, K], or a list with one for each group
  TensorList weight;             ///< as above; one [K, N] with group_type 2
  TensorList bias;               ///< optional. [E, N] or a list of [N]; f32, f16, bf16, or i32 beside integer weights
  TensorList scale;              ///< of integers. [E, N], [E, 1, N] or [E, G, N], or a list of [N] or [G, N]
  TensorList offset;             ///< optional, of an i8 output. As scale, f32
  TensorList antiquant_scale;    ///< of integer weights beside float x. As scale
  TensorList antiquant_offset;   ///< optional. As antiquant_scale
  TensorList per_token_scale;    ///< optional, of integers. [M] f32, one for each x
  TensorView group_list;         ///< i64 or i32, not with group_type -1 or a list of x. See group_list_type
  std::int64_t split_item = 0;   ///< 0, 1: a y for each group; 2, 3: one y
  std::int64_t group_type = -1;  ///< -1: x and weight pair up; 0: groups of rows; 2: groups of K
  std::int64_t group_list_type = 0;   ///< 0 cumulative [E], 1 counts [E], 2 pairs (group, count) [n, 2]
  std::int64_t act_type = 0;          ///< 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu; needs per_token_scale
  std::optional<DType> output_dtype;  ///< of integers: i8, f16, bf16, f32, or i32: the bare sums. Default: x's
  CodeType x_dtype = CodeType::none;  ///< of u8 x: e4m3, e5m2, e2m1; then all four say what the u8 are
  CodeType weight_dtype = CodeType::none;
  CodeType scale_dtype = CodeType::none;
  CodeType per_token_scale_dtype = CodeType::none;
  TensorList y;  ///< out. [M, N] each; group_type 2: [E, M, N]. Rows past the groups' sum are not written
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

/// silu(gate) * up of (x x weight) * weight_scale * x_scale, quantized to int8 row by row; N = [gate | up].
///
/// Source: npu_grouped_matmul_swiglu_quant
struct GroupedMatmulSwigluQuantArgs {
  TensorView x;             ///< Shape: [M, K] i8
  TensorView weight;        ///< Shape: [E, K, N] i8, or int4 in i32
  TensorView group_list;    ///< Shape: [E] i64 or i32, cumulative
  TensorView weight_scale;  ///< Shape: [E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit
  TensorView x_scale;       ///< Shape: [M] f32
  TensorView bias;          ///< optional, of int4 weights: the assist matrix [E, N], as in grouped_matmul
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output;        ///< out. Shape: [M, N / 2] i8
  TensorView output_scale;  ///< out. Shape: [M] f32
};
void infer(GroupedMatmulSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const GroupedMatmulSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const GroupedMatmulSwigluQuantArgs& args);
void grouped_matmul_swiglu_quant(StreamView stream, const GroupedMatmulSwigluQuantArgs& args, const Call& how = {});

/// The second version: lists of weights, counts as group list, a smooth scale before the quantization.
///
/// Source: npu_grouped_matmul_swiglu_quant_v2
struct GroupedMatmulSwigluQuantV2Args {
  TensorView x;                      ///< Shape: [M, K] i8
  TensorList weight;                 ///< [E, K, N] i8, or int4 in i32; or a list of E [K, N]
  TensorList weight_scale;           ///< [E, N], [E, 1, N] or [E, G, N], or a list
  TensorView x_scale;                ///< Shape: [M] f32
  TensorView group_list;             ///< Shape: [E] i64 or i32
  TensorView smooth_scale;           ///< optional. Shape: [E, N / 2] f32, multiplies before the quantization
  TensorList weight_assist_matrix;   ///< optional, of int4 weights. [E, N] f32, as in grouped_matmul
  TensorView bias;                   ///< optional, of i8 weights. Shape: [E, N] i32
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
  TensorView bias;          ///< optional, of int4 weights: the assist matrix [E, N]
  TensorView group_list;    ///< Shape: [E] i64 or i32, cumulative
  TensorView weight_scale;  ///< Shape: [E, N], [E, 1, N] or [E, G, N]
  TensorView x_scale;       ///< Shape: [M] f32
  double swiglu_limit = 0;  ///< above 0: gate is cut to at most this, up to plus and minus it, before the activation
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output;        ///< out. Shape: [M, N / 2] i8
  TensorView output_scale;  ///< out. Shape: [M] f32
};
void infer(CAscendGroupedMatmulSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const CAscendGroupedMatmulSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const CAscendGroupedMatmulSwigluQuantArgs& args);
void c_ascend_grouped_matmul_swiglu_quant(StreamView stream, const CAscendGroupedMatmulSwigluQuantArgs& args,
                                          const Call& how = {});

/// y[t] = the sum of logit[m] * row m of the grouped product over the rows with row_index[m] == t, m ascending,
/// + shared_input_weight * shared_input[t - shared_input_offset] where there is one.
///
/// Source: npu_grouped_matmul_finalize_routing
struct GroupedMatmulFinalizeRoutingArgs {
  TensorView x;                          ///< Shape: [M, K] i8
  TensorView weight;                     ///< Shape: [E, K, N] i8, or int4 in i32
  TensorView group_list;                 ///< Shape: [E] i64 or i32
  TensorView scale;                      ///< Shape: [E, N], [E, 1, N] or [E, G, N]
  TensorView bias;                       ///< optional. Shape: [E, N]; of int4 weights the assist matrix
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
