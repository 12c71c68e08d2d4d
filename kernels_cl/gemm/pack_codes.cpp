#include <moecl/pack_codes.hpp>

#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "kernels_cl/gemm/pack_codes_args.h"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource pack_codes;
}

namespace moecl::pack_codes {
namespace {

std::string reject_codes(const char* what, const BufferView& source, const CodeLayout& codes) {
  const std::int32_t unit_bits = codes.unit_bytes * 8;
  if (is_plain(codes.type) || codes.rows < 1 || codes.columns < 1 || codes.row_stride < 0 || codes.column_stride < 0 ||
      codes.first_row < 0 || codes.first_column < 0)
    return fmt::format("{}: expected codes of [{}, {}] with strides and a start that are not negative, got {}", what,
                       codes.rows, codes.columns, name(codes.type));
  if (codes.unit_codes < 1 || codes.unit_bytes < 1 || codes.unit_codes * bits(codes.type) > unit_bits ||
      (codes.interleaved && codes.unit_codes != 8))
    return fmt::format("{}: {} codes of {} bits do not fit units of {} bytes{}", what, codes.unit_codes,
                       bits(codes.type), codes.unit_bytes, codes.interleaved ? ", or are not eight" : "");
  const auto needed =
      static_cast<std::uint64_t>((codes.end_unit() - codes.first_unit()) * std::int64_t{codes.unit_bytes});
  if (source.size_bytes < needed)
    return fmt::format("{}: [{}, {}] {} needs {} bytes, its buffer has {}", what, codes.rows, codes.columns,
                       name(codes.type), needed, source.size_bytes);
  return {};
}

/// Whether `scale` has `groups` groups. If it is [.., G / P, P], the last set of P groups may be incomplete.
bool gives_groups(const TensorView& scale, std::int64_t groups) {
  if (scale.rank == 2) return scale.shape[1] == groups;
  return scale.shape[2] >= 1 && quotient_up(groups, scale.shape[2]) == scale.shape[1];
}

std::string reject_groups(const Args& args) {
  const PackedWeights& packed = args.packed;
  if (args.scale.present() != packed.grouped() || (args.zero.handle != nullptr) != packed.zero.present())
    return fmt::format("scale, zero: expected as the packed weights have them, got {} scale and {} zero beside {}, {}",
                       args.scale.present() ? "a" : "no", args.zero.handle != nullptr ? "a" : "no",
                       packed.scale.describe(), packed.zero.describe());
  if (!packed.grouped()) return {};
  const TensorView& scale = args.scale;
  if (args.group_rows < 1 || (scale.rank != 2 && scale.rank != 3) || scale.dtype != packed.scale.dtype ||
      scale.shape[1] < 1 || scale.shape[0] != quotient_up(args.codes.rows, args.group_rows))
    return fmt::format("scale: expected {} [{} rows / {}, G], got {}", name(packed.scale.dtype), args.codes.rows,
                       args.group_rows, scale.describe());
  if (args.source_group.present() ? args.source_group.rank != 1 || args.source_group.dtype != DType::i32 ||
                                        args.source_group.shape[0] != packed.groups()
                                  : !gives_groups(scale, packed.groups()))
    return fmt::format("source_group: expected i32[{}] for scale {}, got {}", packed.groups(), scale.describe(),
                       args.source_group.describe());
  if (!packed.zero.present()) return {};
  if (scale.rank != 2 || args.zero_codes.rows != scale.shape[0] || args.zero_codes.columns != scale.shape[1] ||
      !is_integer(args.zero_codes.type))
    return fmt::format("zero: expected integers [{}, {}], got {} [{}, {}]", scale.shape[0], scale.shape[1],
                       name(args.zero_codes.type), args.zero_codes.rows, args.zero_codes.columns);
  return reject_codes("zero", args.zero, args.zero_codes);
}

/// -D definitions for the source layout and the panel layout of codes.
std::string source_options(const CodeLayout& codes, std::size_t scale_bytes, PanelLayout packed) {
  return fmt::format(
      "-DCODE_BITS={} -DUNIT_BYTES={} -DUNIT_ROWS={} -DUNIT_COLUMNS={} -DINTERLEAVED={} -DSCALE_BYTES={}{}",
      bits(codes.type), codes.unit_bytes, codes.unit_rows(), codes.unit_columns(), codes.interleaved ? 1 : 0,
      scale_bytes, grouped_gemm::layout_option(packed));
}

TensorView bytes_of(const BufferView& buffer) {
  return TensorView(buffer, DType::u8, {static_cast<std::int64_t>(buffer.size_bytes)});
}

pack_columns columns_of(const Args& args) {
  const std::int64_t end = args.first_column + args.codes.rows;
  return {.expert_panel = args.expert * PackedWeights::panels(args.packed.n),
          .rows = int_of(args.codes.rows),
          .first_column = int_of(args.first_column),
          .zero_first = end == args.packed.n ? int_of(end) : std::numeric_limits<std::int32_t>::max(),
          .pad = 0};
}

pack_source source_of(const CodeLayout& codes) {
  return {.first_unit = codes.first_unit(),
          .row_stride = codes.row_stride,
          .column_stride = codes.column_stride,
          .first_row = codes.first_row,
          .first_k = codes.first_column};
}

pack_codes_args codes_args(const Args& args, const TensorView& source, const TensorView& packed, std::int64_t k_block) {
  return {.columns = columns_of(args),
          .codes = source_of(args.codes),
          .source_first = first_element(source),
          .packed_first = first_element(packed),
          .k = int_of(args.packed.k),
          .k_block = int_of(k_block),
          .flip = implicit_zero(args.codes.type),
          .pad = 0};
}

pack_scales_args scales_args(const Args& args, const TensorView& packed_scale) {
  return {.columns = columns_of(args),
          .scale_first = first_element(args.scale),
          .source_group_first = first_element(args.source_group),
          .packed_scale_first = first_element(packed_scale),
          .row_stride = args.scale.stride[0],
          .outer_stride = args.scale.stride[1],
          .inner_stride = args.scale.stride[2],
          .inner = int_of(args.scale.rank == 3 ? args.scale.shape[2] : 1),
          .groups = int_of(args.packed.groups()),
          .group_rows = int_of(args.group_rows),
          .pad = 0};
}

pack_zeros_args zeros_args(const Args& args, const TensorView& zero, const TensorView& packed_zero) {
  const CodeType type = args.zero_codes.type;
  return {.columns = columns_of(args),
          .codes = source_of(args.zero_codes),
          .zero_first = first_element(zero),
          .source_group_first = first_element(args.source_group),
          .packed_zero_first = first_element(packed_zero),
          .groups = int_of(args.packed.groups()),
          .group_rows = int_of(args.group_rows),
          .sign_bit = implicit_zero(type) != 0 ? 0 : 1 << (bits(type) - 1),
          .add = args.zero_add - implicit_zero(args.codes.type)};
}

}  // namespace

std::string reject(const Args& args, const Device&) {
  const PackedWeights& packed = args.packed;
  if (std::string reason = packed.reject(); !reason.empty()) return reason;
  if (packed_type(args.codes.type) != packed.type || args.codes.columns != packed.k)
    return fmt::format("codes: expected {} [rows, {}], got {} [{}, {}]", name(packed.type), packed.k,
                       name(args.codes.type), args.codes.rows, args.codes.columns);
  if (std::string reason = reject_codes("codes", args.source, args.codes); !reason.empty()) return reason;
  if (args.expert < 0 || args.expert >= packed.experts)
    return fmt::format("expert: {} is not in [0, {})", args.expert, packed.experts);
  if (args.first_column < 0 || args.first_column > packed.n - args.codes.rows)
    return fmt::format("first_column: rows [{}, {} + {}) leave the {} columns", args.first_column, args.first_column,
                       args.codes.rows, packed.n);
  return reject_groups(args);
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args, *stream.device);
  require(reason.empty(), "pack_codes: {}", reason);
  constexpr std::int64_t panel = PackedWeights::panel_columns;
  const CodeLayout& codes = args.codes;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const std::int64_t panels = PackedWeights::panels(args.first_column + codes.rows) - args.first_column / panel;
  const bool grouped = args.packed.grouped();
  const std::size_t scale_bytes = grouped ? size_bytes(args.packed.scale.dtype) : 4;
  const OperatorCost work = cost(args);
  const std::int64_t k_block = stream.device->caps.type == DeviceType::cpu ? 1024 : 64;
  const std::string shape = fmt::format("{} [{}, {}]", name(codes.type), codes.rows, codes.columns);
  const TensorView source = bytes_of(args.source), view = args.packed.view(),
                   packed(view.buffer, DType::u8, {static_cast<std::int64_t>(view.size_bytes())});
  launch(stream, {&source::pack_codes, source_options(codes, scale_bytes, args.packed.layout), "pack_codes"},
         {{size(quotient_up(args.packed.k, k_block) * PACK_LANES), PACK_K_LANES, size(panels)},
          {PACK_LANES, PACK_K_LANES, 1}},
         grouped ? Submit{submit.wait} : submit, {"pack_codes", "t0", shape, work.bytes, work.flops}, source, packed,
         codes_args(args, source, packed, k_block));
  if (!grouped) return;
  const TensorView &packed_scale = args.packed.scale, &packed_zero = args.packed.zero;
  const Submit last{{}, submit.done};
  const NdRange range{{size(panels * panel), size(args.packed.groups()), 1}, {size(panel), 1, 1}};
  launch(stream, {&source::pack_codes, source_options(codes, scale_bytes, args.packed.layout), "pack_scales"}, range,
         packed_zero.present() ? Submit{} : last, {"pack_scales", "t0", args.scale.describe(), 0, 0}, args.scale,
         args.source_group, packed_scale, scales_args(args, packed_scale));
  if (!packed_zero.present()) return;
  const TensorView zero = bytes_of(args.zero);
  launch(stream, {&source::pack_codes, source_options(args.zero_codes, scale_bytes, args.packed.layout), "pack_zeros"},
         range, last, {"pack_zeros", "t0", name(args.zero_codes.type), 0, 0}, zero, args.source_group, packed_zero,
         zeros_args(args, zero, packed_zero));
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.codes.rows * args.codes.columns);
  return {2 * elements * static_cast<std::uint64_t>(bits(args.codes.type)) / 8, 0};
}

}  // namespace moecl::pack_codes
