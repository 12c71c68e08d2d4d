#include <moecl/pack_codes.hpp>

#include <limits>

#include "kernels_cl/common/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

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

/// The last of the groups that stand together may be without a partner.
bool gives_groups(const TensorView& scale, std::int64_t groups) {
  if (scale.rank == 2) return scale.shape[1] == groups;
  return scale.shape[2] >= 1 && (groups + scale.shape[2] - 1) / scale.shape[2] == scale.shape[1];
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
      scale.shape[1] < 1 || scale.shape[0] != (args.codes.rows + args.group_rows - 1) / args.group_rows)
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

/// -D definitions of where codes stand.
std::string layout_options(const CodeLayout& codes, std::size_t scale_bytes) {
  return fmt::format(
      "-DCODE_BITS={} -DUNIT_BYTES={} -DUNIT_ROWS={} -DUNIT_COLUMNS={} -DINTERLEAVED={} -DSCALE_BYTES={}",
      bits(codes.type), codes.unit_bytes, codes.unit_rows(), codes.unit_columns(), codes.interleaved ? 1 : 0,
      scale_bytes);
}

TensorView bytes_of(const BufferView& buffer) {
  return TensorView(buffer, DType::u8, {static_cast<std::int64_t>(buffer.size_bytes)});
}

}  // namespace

std::string reject(const Args& args, const DeviceCaps&) {
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
  const std::string reason = reject(args, stream.device->caps);
  require(reason.empty(), "pack_codes: {}", reason);
  constexpr std::int64_t panel = PackedWeights::panel_columns, lanes = 16, k_lanes = 4;
  const PackedWeights& packed = args.packed;
  const CodeLayout &codes = args.codes, &zero = args.zero_codes;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const auto width = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const std::int64_t end = args.first_column + codes.rows,
                     panels = PackedWeights::panels(end) - args.first_column / panel,
                     expert_panel = args.expert * PackedWeights::panels(packed.n);
  const std::int32_t rows = width(codes.rows), first_column = width(args.first_column),
                     zero_first = width(end == packed.n ? end : std::numeric_limits<std::int32_t>::max());
  const std::size_t scale_bytes = packed.grouped() ? size_bytes(packed.scale.dtype) : 4;
  const OperatorCost work = cost(args);
  const bool cpu = stream.device->caps.type == DeviceType::cpu;
  const std::int64_t k_block = cpu ? 1024 : 64;
  const std::string shape = fmt::format("{} [{}, {}]", name(codes.type), codes.rows, codes.columns);
  const TensorView codes_of = packed.view();
  launch(stream, {&source::pack_codes, layout_options(codes, scale_bytes), "pack_codes"},
         {{size((packed.k + k_block - 1) / k_block * lanes), size(k_lanes), size(panels)},
          {size(lanes), size(k_lanes), 1}},
         packed.grouped() ? Submit{submit.wait} : submit, {"pack_codes", "t0", shape, work.bytes, work.flops},
         bytes_of(args.source),
         TensorView(codes_of.buffer, DType::u8, {static_cast<std::int64_t>(codes_of.size_bytes())}), codes.first_unit(),
         codes.row_stride, codes.column_stride, codes.first_row, codes.first_column, expert_panel, rows,
         width(packed.k), first_column, zero_first, implicit_zero(codes.type), width(k_block));
  if (!packed.grouped()) return;
  const Submit last{{}, submit.done};
  const NdRange range{{size(panels * panel), size(packed.groups()), 1}, {size(panel), 1, 1}};
  const std::int32_t groups = width(packed.groups()), group_rows = width(args.group_rows);
  launch(stream, {&source::pack_codes, layout_options(codes, scale_bytes), "pack_scales"}, range,
         packed.zero.present() ? Submit{} : last, {"pack_scales", "t0", args.scale.describe(), 0, 0}, args.scale,
         args.source_group, packed.scale, args.scale.stride[0], args.scale.stride[1], args.scale.stride[2],
         args.scale.rank == 3 ? width(args.scale.shape[2]) : 1, expert_panel, rows, groups, group_rows, first_column,
         zero_first);
  if (!packed.zero.present()) return;
  const std::int32_t sign_bit = implicit_zero(zero.type) != 0 ? 0 : 1 << (bits(zero.type) - 1);
  launch(stream, {&source::pack_codes, layout_options(zero, scale_bytes), "pack_zeros"}, range, last,
         {"pack_zeros", "t0", name(zero.type), 0, 0}, bytes_of(args.zero), args.source_group, packed.zero,
         zero.first_unit(), zero.row_stride, zero.column_stride, zero.first_row, zero.first_column, expert_panel, rows,
         groups, group_rows, first_column, zero_first, sign_bit, args.zero_add - implicit_zero(codes.type));
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.codes.rows * args.codes.columns);
  return {2 * elements * static_cast<std::uint64_t>(bits(args.codes.type)) / 8, 0};
}

}  // namespace moecl::pack_codes
