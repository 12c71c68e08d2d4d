#pragma once
#include <moecl/npu.hpp>

namespace moecl::npu {

/// y = A * sigmoid(A) * B, A and B the halves of x along `dim`; f32 inside, rounded once to x's dtype.
///
/// Source: npu_swiglu
struct SwigluArgs {
  TensorView x;           ///< Shape: [..., 2D, ...] f32, f16 or bf16
  std::int64_t dim = -1;  ///< which dimension; negative counts from the last
  TensorView y;           ///< out. Shape: [..., D, ...], x's dtype
};
void infer(SwigluArgs& args);
std::uint64_t workspace_bytes(const SwigluArgs& args, const Device& device);
OperatorCost cost(const SwigluArgs& args);
void swiglu(StreamView stream, const SwigluArgs& args, const Call& how = {});

/// What codes are; only int8 here.
enum class DequantSwigluType : std::uint8_t { int8, float8_e4m3fn, float8_e5m2 };

/// x * weight_scale * activation_scale + bias (an i32 bias counts as part of x), SwiGLU, int8 codes.
///
/// swiglu_mode 0: swish of one half times the other. 1: clamped, g = min(x[2i], limit), l = clamp(x[2i + 1], -limit,
/// limit), g * sigmoid(alpha * g) * (l + bias); 2: the same on halves, the left one activated. quant_mode 0: y =
/// round(v / quant_scale + quant_offset), a single scale as its reciprocal; 1: v * quant_scale, then y = v / scale,
/// scale = amax * (1 / 127). f32 inside, halves to even. With group_index the operator ignores bias. Source:
/// npu_dequant_swiglu_quant
struct DequantSwigluQuantArgs {
  TensorView x;                 ///< Shape: [..., 2H], two or more dimensions; i32, or f16, bf16 or f32
  TensorView weight_scale;      ///< with i32. Shape: [2H] or [1, 2H], with group_index [G, 2H]; f32
  TensorView activation_scale;  ///< optional, with i32. Shape: one f32 for each row, [T] or [T, 1]
  TensorView bias;              ///< optional, with i32. Shape: [2H] or [1, 2H]; i32, or a float type
  TensorView quant_scale;       ///< f32; dynamic optional, static required. Shape: [H], [1, H], [1], with groups [G, H]
  TensorView quant_offset;      ///< optional, static. Shape: as quant_scale, f32
  TensorView group_index;       ///< optional. Shape: [G] i32 or i64: COUNTS of rows; rows past their sum are untouched
  bool activate_left = false;   ///< swiglu_mode 0: which half is activated
  std::int64_t quant_mode = 0;  ///< 0 static, 1 dynamic
  DequantSwigluType dst_type = DequantSwigluType::int8;
  RoundMode round_mode = RoundMode::rint;  ///< only rint
  std::int64_t activate_dim = -1;          ///< only the last dimension
  std::int64_t swiglu_mode = 0;            ///< 0, 1 or 2
  double clamp_limit = 7;                  ///< Range: above 0
  double glu_alpha = 1.702;
  double glu_bias = 1;
  TensorView y;      ///< out. Shape: [..., H] i8
  TensorView scale;  ///< out, dynamic. Shape: x's without the last dimension, f32
};
void infer(DequantSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const DequantSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const DequantSwigluQuantArgs& args);
void dequant_swiglu_quant(StreamView stream, const DequantSwigluQuantArgs& args, const Call& how = {});

/// vllm-ascend's own form: swiglu_mode 1 is the clamped form on halves, and a clamp_limit of 0 or less does not clamp.
///
/// Source: _C_ascend.npu_dequant_swiglu_quant of vllm-ascend
struct CAscendDequantSwigluQuantArgs {
  TensorView x;                 ///< Shape: [..., 2H], two or more dimensions; i32, or f16, bf16 or f32
  TensorView weight_scale;      ///< with i32. Shape: [2H] or [1, 2H], with group_index [G, 2H]; f32
  TensorView activation_scale;  ///< optional, with i32. Shape: one f32 for each row, [T] or [T, 1]
  TensorView bias;              ///< optional, with i32. Shape: [2H] or [1, 2H]; i32, or a float type
  TensorView quant_scale;       ///< f32; dynamic optional, static required. Shape: [H], [1, H], [1], with groups [G, H]
  TensorView quant_offset;      ///< optional, static. Shape: as quant_scale, f32
  TensorView group_index;       ///< optional. Shape: [G] i32 or i64: COUNTS of rows; rows past their sum are untouched
  bool activate_left = true;    ///< which half is activated
  std::int64_t quant_mode = 0;  ///< 0 static, 1 dynamic
  std::int64_t swiglu_mode = 0;  ///< 0 or 1
  double clamp_limit = 0;
  double glu_alpha = 1;
  double glu_bias = 0;
  TensorView y;      ///< out. Shape: [..., H] i8
  TensorView scale;  ///< out, dynamic. Shape: x's without the last dimension, f32
};
void infer(CAscendDequantSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const CAscendDequantSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const CAscendDequantSwigluQuantArgs& args);
void c_ascend_dequant_swiglu_quant(StreamView stream, const CAscendDequantSwigluQuantArgs& args, const Call& how = {});

}  // namespace moecl::npu
