#include "host/npu/row_codes.hpp"

#include <moecl/gather_rows.hpp>

#include "runtime/quotient.hpp"

namespace moecl::npu {
namespace {

using quantize_rows::Codes;
using quantize_rows::Scheme;

/// Rows of whole bytes as rows of i8.
TensorView as_bytes(const TensorView& view) {
  const auto size = static_cast<std::int64_t>(size_bytes(view.dtype));
  TensorView bytes = view;
  bytes.dtype = DType::i8;
  bytes.shape[1] *= size;
  bytes.stride[0] *= size;
  return bytes;
}

/// [R, n] as [R, n, 1]. Rows may be strided.
TensorView with_inner(TensorView view) {
  view.shape[2] = view.stride[2] = 1;
  view.rank = 3;
  return view;
}

std::int64_t codes_per_byte(const RowCodes& how) {
  return how.int4 || (how.blocks && how.blocks->format.bits() == 4) ? 2 : 1;
}

}  // namespace

bool RowCodes::given() const { return !blocks && (rows.scheme == Scheme::given || rows.scheme == Scheme::static_f16); }

DType RowCodes::dtype() const { return blocks || int4 || rows.codes != Codes::integer ? DType::u8 : DType::i8; }

DType RowCodes::scale_dtype() const { return blocks ? DType::u8 : DType::f32; }

std::int64_t RowCodes::width(std::int64_t hidden) const { return hidden / codes_per_byte(*this); }

std::vector<std::int64_t> RowCodes::row_scales(std::int64_t hidden) const {
  if (blocks) return {(hidden + 63) / 64 * 2};
  if (rows.group == 0) return {};
  const std::int64_t groups = quotient_up(hidden, rows.group);
  return {quotient_up(groups, scales_align) * scales_align};
}

void RowCodes::check(const TensorView& x) const {
  require(is_activation_dtype(x.dtype), "x: floats are quantized, got {}", x);
  const std::int64_t hidden = x.shape[1];
  require(hidden % codes_per_byte(*this) == 0, "x: codes of 4 bits are packed by two, but rows have {} columns",
          hidden);
}

void quantize_moved(Steps& steps, const RowCodes& how, const MovedRows& from, const TensorView& codes,
                    const TensorView& scale) {
  if (how.blocks) {
    mx_quantize::Args blocks = *how.blocks;
    blocks.x = with_inner(from.x);
    blocks.y = with_inner(codes);
    blocks.scale = reshaped(scale, {scale.shape[0], scale.shape[1] / 2, 1, 2});
    blocks.index = from.index;
    blocks.divisor = from.divisor;
    blocks.row_ends = from.row_ends;
    blocks.rows_per_expert = from.rows_per_expert;
    return steps.run(blocks);
  }
  quantize_rows::Args rows = how.rows;
  rows.x = from.x;
  rows.q = codes;
  if (!how.given()) rows.scale = scale;
  rows.index = from.index;
  rows.divisor = from.divisor;
  rows.row_ends = from.row_ends;
  rows.rows_per_expert = from.rows_per_expert;
  rows.smooth = from.smooth;
  rows.smooth_rows = from.smooth_rows;
  steps.run(rows);
}

void move_rows(Steps& steps, const MovedRows& from, const TensorView& out) {
  const bool floats = is_activation_dtype(from.x.dtype);
  steps.run(gather_rows::Args{floats ? from.x : as_bytes(from.x), from.index, from.divisor, from.row_ends,
                              from.rows_per_expert, floats ? out : as_bytes(out)});
}

RowCodes float_rows(Codes codes, quantize_rows::Rounding rounding, std::int32_t group) {
  RowCodes how;
  how.rows.codes = codes;
  how.rows.rounding = rounding;
  how.rows.group = group;
  return how;
}

RowCodes mx_rows(const Minifloat& format, mx_quantize::ScaleRule rule) {
  RowCodes how;
  how.blocks.emplace();
  how.blocks->format = format;
  how.blocks->scale_rule = rule;
  return how;
}

}  // namespace moecl::npu
