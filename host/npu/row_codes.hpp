#pragma once
// How rows become codes where operators move them: what their quant_modes mean.
#include <moecl/mx_quantize.hpp>
#include <moecl/quantize_rows.hpp>

#include <optional>

#include "host/npu/steps.hpp"

namespace moecl::npu {

/// Integers or floats with a scale for each row, for groups of 128 columns or given; or MX blocks.
struct RowCodes {
  quantize_rows::Args rows;                 ///< their rules, without tensors but given scales
  std::optional<mx_quantize::Args> blocks;  ///< the rules of MX blocks instead
  bool int4 = false;                        ///< of rows: two to a byte
  std::int64_t scales_align = 1;            ///< of groups: a row's scales are filled up to a multiple of it

  bool given() const;   ///< scales are not outputs
  DType dtype() const;  ///< i8, or u8 of all other codes
  DType scale_dtype() const;
  std::int64_t width(std::int64_t hidden) const;  ///< of a row of codes
  /// Scales of a row. Shape: [], or [S]
  std::vector<std::int64_t> row_scales(std::int64_t hidden) const;
  /// Errors: invalid_argument  rows that cannot be packed, a type that is not quantized
  void check(const TensorView& x) const;
};

/// Rows of x by index, where they are valid, times smooth vectors; as quantize_rows::Args has them.
struct MovedRows {
  TensorView x, index;
  std::int32_t divisor = 1;
  TensorView row_ends;
  std::int64_t rows_per_expert = 0;
  TensorView smooth, smooth_rows;
};

/// @param codes  Shape: [R, width]
/// @param scale  Shape: [R] or [R, S]; absent where scales are given
void quantize_moved(Steps& steps, const RowCodes& how, const MovedRows& from, const TensorView& codes,
                    const TensorView& scale);
/// Floats, and codes of whole bytes.
inline bool is_movable(DType dtype) { return is_activation_dtype(dtype) || dtype == DType::i8 || dtype == DType::u8; }
/// Rows as they are, of any storage type.
void move_rows(Steps& steps, const MovedRows& from, const TensorView& out);

RowCodes float_rows(quantize_rows::Codes codes, quantize_rows::Rounding rounding, std::int32_t group = 0);
RowCodes mx_rows(const Minifloat& format, mx_quantize::ScaleRule rule);

}  // namespace moecl::npu
