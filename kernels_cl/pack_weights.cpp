#include <moecl/pack_weights.hpp>

#include <limits>

#include "kernels_cl/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl {

std::int64_t PackedWeights::panels(std::int64_t n) noexcept { return (n + panel_columns - 1) / panel_columns; }

std::uint64_t PackedWeights::size_bytes(DType dtype, std::int64_t experts, std::int64_t n, std::int64_t k) {
  std::int64_t elements = 0;
  require(experts >= 0 && n >= 0 && k >= 0 && n <= std::numeric_limits<std::int64_t>::max() - panel_columns &&
              !__builtin_mul_overflow(panels(n) * panel_columns, k, &elements) &&
              !__builtin_mul_overflow(elements, experts, &elements) &&
              !__builtin_mul_overflow(elements, static_cast<std::int64_t>(moecl::size_bytes(dtype)), &elements),
          "packed weights: no size for {} experts of [{}, {}] {}", experts, n, k, name(dtype));
  return static_cast<std::uint64_t>(elements);
}

TensorView PackedWeights::view() const { return {buffer, dtype, {experts, panels(n), k, panel_columns}}; }

std::string PackedWeights::reject() const {
  const auto fits = [](std::int64_t value) { return value >= 1 && value <= std::numeric_limits<std::int32_t>::max(); };
  if (!is_activation_dtype(dtype) && dtype != DType::i8)
    return fmt::format("weights: expected f32, f16, bf16 or i8, got {}", name(dtype));
  if (!fits(experts) || !fits(n) || !fits(k))
    return fmt::format("weights: {} experts of [{}, {}] are not all in [1, 2^31)", experts, n, k);
  if (buffer.size_bytes < size_bytes(dtype, experts, n, k))
    return fmt::format("weights: {} experts of [{}, {}] {} need {} bytes, their buffer has {}", experts, n, k,
                       name(dtype), size_bytes(dtype, experts, n, k), buffer.size_bytes);
  if (buffer.offset_bytes % alignment_bytes != 0)
    return fmt::format("weights: byte offset {} is no multiple of {}", buffer.offset_bytes, alignment_bytes);
  return {};
}

}  // namespace moecl

namespace moecl::source {
extern const ProgramSource pack_weights;
}

namespace moecl::pack_weights {

std::string reject(const Args& args, const DeviceCaps&) {
  if (std::string reason = args.packed.reject(); !reason.empty()) return reason;
  const DType from = args.source.dtype, to = args.packed.dtype;
  if (args.source.rank != 2 || args.source.shape[1] != args.packed.k ||
      (is_activation_dtype(from) ? !is_activation_dtype(to) : from != DType::i8 || to != DType::i8))
    return fmt::format("source: expected [rows, {}] of a type that converts to {}, got {}", args.packed.k, name(to),
                       args.source.describe());
  if (args.expert < 0 || args.expert >= args.packed.experts)
    return fmt::format("expert: {} is not in [0, {})", args.expert, args.packed.experts);
  if (args.first_column < 0 || args.first_column > args.packed.n - args.source.shape[0])
    return fmt::format("first_column: rows [{}, {} + {}) leave the {} columns", args.first_column, args.first_column,
                       args.source.shape[0], args.packed.n);
  return {};
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args, stream.device->caps);
  require(reason.empty(), "pack_weights: {}", reason);
  // Long blocks of k keep the memory streams of a CPU's one work-item going; a GPU wants many work-groups.
  const bool explicit_vectors = stream.device->caps.preferred_float_width >= 4;
  const std::int64_t lanes = explicit_vectors ? 1 : 64, k_block = explicit_vectors ? 1024 : 64;
  const TensorView packed = args.packed.view().rows(args.expert, 1);
  const std::int64_t rows = args.source.shape[0], end = args.first_column + rows;
  const std::int64_t touched =
      rows == 0 ? 0 : PackedWeights::panels(end) - args.first_column / PackedWeights::panel_columns;
  const OperatorCost work = cost(args);
  launch(stream,
         {&source::pack_weights,
          fmt::format("-DLANES={} -DK_BLOCK={}{}{}", lanes, k_block, dtype_option("SOURCE_DTYPE", args.source),
                      dtype_option("PACKED_DTYPE", packed)),
          "pack_weights"},
         {{static_cast<std::size_t>((args.packed.k + k_block - 1) / k_block * lanes), static_cast<std::size_t>(touched),
           1},
          {static_cast<std::size_t>(lanes), 1, 1}},
         submit,
         {"pack_weights", lanes == 1 ? "panel_per_item" : "panel_per_group", args.source.describe(), work.bytes,
          work.flops},
         args.source, packed, args.source.stride[0], args.source.stride[1], static_cast<std::int32_t>(rows),
         static_cast<std::int32_t>(args.packed.k), static_cast<std::int32_t>(args.first_column),
         static_cast<std::int32_t>(end == args.packed.n ? end : std::numeric_limits<std::int32_t>::max()));
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.source.elements());
  return {elements * (size_bytes(args.source.dtype) + size_bytes(args.packed.dtype)), 0};
}

}  // namespace moecl::pack_weights
