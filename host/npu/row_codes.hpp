#pragma once
// How operators quantize rows while they move them: the meaning of their quant_modes.
#include <moecl/mx_quantize.hpp>
#include <moecl/quantize_rows.hpp>

#include <optional>

#include "host/npu/steps.hpp"

namespace moecl::npu {

/// How rows are quantized: to integers or floats with a scale for each row, for each 128 columns or given; or to MX
/// blocks.
struct RowCodes {
  quantize_rows::Args rows;                 ///< the rules; no tensors but scales that are given
  std::optional<mx_quantize::Args> blocks;  ///< the rules of MX blocks, instead of `rows`
  bool int4 = false;                        ///< with `rows`: int4 codes, two in a byte
  std::int64_t scales_align = 1;            ///< with groups: the scales of a row are padded to a multiple of it

  bool given() const;   ///< scales are not outputs
  DType dtype() const;  ///< i8 for int8, u8 for all other codes
  DType scale_dtype() const;
  std::int64_t width(std::int64_t hidden) const;  ///< number of elements in a row of codes
  /// The shape of the scales of one row: [] or [S].
  std::vector<std::int64_t> row_scales(std::int64_t hidden) const;
  /// Errors: invalid_argument  rows that cannot be packed, or a type that cannot be quantized
  void check(const TensorView& x) const;
};

/// The rows to move: the valid rows of x by index, times smooth vectors. The fields are as in quantize_rows::Args.
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
/// Whether rows of this type can be moved: floats, and codes of whole bytes.
inline bool is_movable(DType dtype) { return is_activation_dtype(dtype) || dtype == DType::i8 || dtype == DType::u8; }
/// Moves rows unchanged, of any storage type.
void move_rows(Steps& steps, const MovedRows& from, const TensorView& out);

RowCodes float_rows(quantize_rows::Codes codes, quantize_rows::Rounding rounding, std::int32_t group = 0);
RowCodes mx_rows(const Minifloat& format, mx_quantize::ScaleRule rule);

}  // namespace moecl::npu
