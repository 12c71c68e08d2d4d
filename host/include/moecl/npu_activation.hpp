#pragma once
#include <moecl/npu.hpp>

namespace moecl::npu {

/// y = A * sigmoid(A) * B, where A and B are the halves of x along `dim`. f32 arithmetic, rounded once to x's dtype.
///
/// Source: npu_swiglu
struct SwigluArgs {
  TensorView x;           ///< Shape: [..., 2D, ...] f32, f16 or bf16
  std::int64_t dim = -1;  ///< the dimension that is halved; negative counts from the last
  TensorView y;           ///< out. Shape: [..., D, ...], x's dtype
};
void infer(SwigluArgs& args);
std::uint64_t workspace_bytes(const SwigluArgs& args, const Device& device);
OperatorCost cost(const SwigluArgs& args);
void swiglu(StreamView stream, const SwigluArgs& args, const Call& how = {});

/// The type of the codes. Only int8 is supported.
enum class DequantSwigluType : std::uint8_t { int8, float8_e4m3fn, float8_e5m2 };

/// Dequantizes x, applies SwiGLU and quantizes the result v to int8 codes. Dequantized: x * weight_scale *
/// activation_scale + bias, where an i32 bias is added to x before the scales.
///
/// swiglu_mode 0: swish of one half times the other half. 1: clamped and interleaved, g * sigmoid(glu_alpha * g) * (l +
/// glu_bias) with g = min(x[2i], clamp_limit) and l = clamp(x[2i + 1], -clamp_limit, clamp_limit). 2: as 1, with g from
/// the left half and l from the right half.
/// quant_mode 0: y = round(v / quant_scale + quant_offset); with a single quant_scale, v is multiplied by its
/// reciprocal. 1: v is multiplied by quant_scale, then y = v / scale with scale = amax * (1 / 127). f32 arithmetic;
/// ties go to even. With group_index the operator ignores bias.
/// Source: npu_dequant_swiglu_quant
struct DequantSwigluQuantArgs {
  TensorView x;                 ///< Shape: [..., 2H], two or more dimensions; i32, or f16, bf16 or f32
  TensorView weight_scale;      ///< with i32 x. Shape: [2H] or [1, 2H], with group_index [G, 2H]; f32
  TensorView activation_scale;  ///< optional, with i32 x. Shape: [T] or [T, 1] f32, one for each row
  TensorView bias;              ///< optional, with i32 x. Shape: [2H] or [1, 2H]; i32, or a float type
  TensorView quant_scale;       ///< f32; optional with quant_mode 1. Shape: [H], [1, H] or [1], with group_index [G, H]
  TensorView quant_offset;      ///< optional, with quant_mode 0. Shape: as quant_scale, f32
  TensorView group_index;       ///< optional. Shape: [G] i32 or i64: COUNTS of rows; rows past their sum are untouched
  bool activate_left = false;   ///< swiglu_mode 0: the left half is activated, else the right one
  std::int64_t quant_mode = 0;  ///< 0 static, 1 dynamic
  DequantSwigluType dst_type = DequantSwigluType::int8;
  RoundMode round_mode = RoundMode::rint;  ///< only rint
  std::int64_t activate_dim = -1;          ///< only the last dimension
  std::int64_t swiglu_mode = 0;            ///< 0, 1 or 2
  double clamp_limit = 7;                  ///< Range: above 0
  double glu_alpha = 1.702;
  double glu_bias = 1;
  TensorView y;      ///< out. Shape: [..., H] i8
  TensorView scale;  ///< out, with quant_mode 1. Shape: x's without the last dimension, f32
};
void infer(DequantSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const DequantSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const DequantSwigluQuantArgs& args);
void dequant_swiglu_quant(StreamView stream, const DequantSwigluQuantArgs& args, const Call& how = {});

/// vllm-ascend's own form. swiglu_mode 1 is the clamped form on halves; a clamp_limit of 0 or less does not clamp.
///
/// Source: _C_ascend.npu_dequant_swiglu_quant of vllm-ascend
struct CAscendDequantSwigluQuantArgs {
  TensorView x;                 ///< Shape: [..., 2H], two or more dimensions; i32, or f16, bf16 or f32
  TensorView weight_scale;      ///< with i32 x. Shape: [2H] or [1, 2H], with group_index [G, 2H]; f32
  TensorView activation_scale;  ///< optional, with i32 x. Shape: [T] or [T, 1] f32, one for each row
  TensorView bias;              ///< optional, with i32 x. Shape: [2H] or [1, 2H]; i32, or a float type
  TensorView quant_scale;       ///< f32; optional with quant_mode 1. Shape: [H], [1, H] or [1], with group_index [G, H]
  TensorView quant_offset;      ///< optional, with quant_mode 0. Shape: as quant_scale, f32
  TensorView group_index;       ///< optional. Shape: [G] i32 or i64: COUNTS of rows; rows past their sum are untouched
  bool activate_left = true;    ///< the left half is activated, else the right one
  std::int64_t quant_mode = 0;  ///< 0 static, 1 dynamic
  std::int64_t swiglu_mode = 0;  ///< 0 or 1
  double clamp_limit = 0;
  double glu_alpha = 1;
  double glu_bias = 0;
  TensorView y;      ///< out. Shape: [..., H] i8
  TensorView scale;  ///< out, with quant_mode 1. Shape: x's without the last dimension, f32
};
void infer(CAscendDequantSwigluQuantArgs& args);
std::uint64_t workspace_bytes(const CAscendDequantSwigluQuantArgs& args, const Device& device);
OperatorCost cost(const CAscendDequantSwigluQuantArgs& args);
void c_ascend_dequant_swiglu_quant(StreamView stream, const CAscendDequantSwigluQuantArgs& args, const Call& how = {});

}  // namespace moecl::npu
