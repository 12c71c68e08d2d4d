#pragma once
#include <moecl/npu.hpp>

namespace moecl::npu {

/// The format of the codes: int8; int4, eight in an i32, element 0 in the lowest nibble; or fp8.
enum class QuantType : std::uint8_t { int8, quint4x2, float8_e4m3fn, float8_e5m2 };

/// Which kernel template of the operator to follow. Results differ by at most one unit. For 127 read 7 with quint4x2,
/// 448 with float8_e4m3fn, 57344 with float8_e5m2.
enum class DynamicQuantRounding : std::uint8_t {
  divide,              ///< x / (amax / 127)
  divide_by_mulscale,  ///< x / scale, scale = amax * (1 / 127)
  plain_template,      ///< x * (127 / amax), scale = 1 / (127 / amax)
  multirow_template    ///< x * (127 / amax), scale = amax * (1 / 127)
};

/// Quantizes each row of x, times its smooth vector. A row's scale is its amax divided by the largest code.
///
/// f32 arithmetic; ties go to even. A row of zeros gets scale 0 and codes 0.
/// Source: npu_dynamic_quant
struct DynamicQuantArgs {
  TensorView x;              ///< Shape: [..., H], two or more dimensions; f16 or bf16, or only in moecl f32
  TensorView smooth_scales;  ///< optional. Shape: [H], with group_index [G, H]; a float type
  TensorView group_index;    ///< optional. Shape: [G] i32 or i64: cumulative row ends; the last is the number of rows
  QuantType dst_type = QuantType::int8;
  TensorView y;      ///< out. Shape: [..., H] i8, for fp8 u8, for int4 [..., H / 8] i32
  TensorView scale;  ///< out. Shape: x's without the last dimension, f32
  DynamicQuantRounding rounding = DynamicQuantRounding::divide;
};
void infer(DynamicQuantArgs& args);
std::uint64_t workspace_bytes(const DynamicQuantArgs& args, const Device& device);
OperatorCost cost(const DynamicQuantArgs& args);
void dynamic_quant(StreamView stream, const DynamicQuantArgs& args, const Call& how = {});

/// As dynamic_quant, with an offset: scale = max((max - min) / 255, 1e-12), offset = 127 - max / scale, y = round(x /
/// scale + offset). For 255 and 127 read 15 and 7 with quint4x2.
///
/// Source: npu_dynamic_quant_asymmetric
struct DynamicQuantAsymmetricArgs {
  TensorView x;              ///< Shape: [..., H], two or more dimensions; f16 or bf16, or only in moecl f32
  TensorView smooth_scales;  ///< optional. Shape: [H], with group_index [G, H]; a float type
  TensorView group_index;    ///< optional. Shape: [G] i32 or i64: cumulative row ends; the last is the number of rows
  QuantType dst_type = QuantType::int8;
  TensorView y;       ///< out. Shape: [..., H] i8, for int4 [..., H / 8] i32
  TensorView scale;   ///< out. Shape: x's without the last dimension, f32
  TensorView offset;  ///< out. Shape: as scale, f32
};
void infer(DynamicQuantAsymmetricArgs& args);
std::uint64_t workspace_bytes(const DynamicQuantAsymmetricArgs& args, const Device& device);
OperatorCost cost(const DynamicQuantAsymmetricArgs& args);
void dynamic_quant_asymmetric(StreamView stream, const DynamicQuantAsymmetricArgs& args, const Call& how = {});

/// The format of the codes. Two fp4 codes stand in a byte, element 0 in the low nibble.
enum class MxType : std::uint8_t { float4_e2m1fn_x2, float4_e1m2fn_x2, float8_e4m3fn, float8_e5m2 };

/// Quantizes blocks of 32 elements along an axis to fp8 or fp4 codes of x / scale. The last block is padded with zeros.
///
/// Exact. Codes saturate. A block of zeros has scale byte 0 (2^-127); a block with NaN or infinity has scale byte 255
/// (NaN) and codes 0.
/// Source: npu_dynamic_mx_quant
struct DynamicMxQuantArgs {
  TensorView x;                            ///< Shape: one to three dimensions; f16 or bf16, or only in moecl f32
  std::int64_t axis = -1;                  ///< the axis along which blocks run. Range: [-rank, rank)
  RoundMode round_mode = RoundMode::rint;  ///< rint, for fp4 also floor and round
  MxType dst_type = MxType::float4_e2m1fn_x2;
  std::int64_t block_size = 32;  ///< only 32
  /// 0: scale 2^(floor(log2(amax)) - emax), where emax is the exponent of dst_type's largest number. 1, only for fp8:
  /// scale 2^ceil(log2(amax / that number))
  std::int64_t scale_alg = 0;
  TensorView y;  ///< out. Shape: x's, with half the last dimension for fp4; u8
  TensorView
      mxscale;  ///< out. Shape: x's with ceil(blocks / 2) at the axis, then a last dimension 2; u8: e8m0, padded with 0
};
void infer(DynamicMxQuantArgs& args);
std::uint64_t workspace_bytes(const DynamicMxQuantArgs& args, const Device& device);
OperatorCost cost(const DynamicMxQuantArgs& args);
void dynamic_mx_quant(StreamView stream, const DynamicMxQuantArgs& args, const Call& how = {});

}  // namespace moecl::npu
