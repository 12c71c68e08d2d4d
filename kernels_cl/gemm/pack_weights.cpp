#include <moecl/pack_weights.hpp>

#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "kernels_cl/gemm/pack_weights_args.h"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource pack_weights;
}

namespace moecl::pack_weights {
namespace {

constexpr std::int64_t int4_per_word = 8;

/// Sizes and strides of the source's matrices, in elements. The elements of an i32 source are int4.
struct Matrices {
  std::int64_t experts = 1, rows = 0, k = 0, stride = 0, row_stride = 0, k_stride = 0;
};

Matrices matrices_of(const Args& args) {
  const TensorView& source = args.source;
  const auto last = static_cast<std::size_t>(source.rank) - 1;
  Matrices m{1, source.shape[last - 1], source.shape[last], 0, source.stride[last - 1], source.stride[last]};
  if (source.rank == 3) m.experts = source.shape[0], m.stride = source.stride[0];
  if (source.dtype != DType::i32) return m;
  const bool along_k = m.k != args.packed.k;
  (along_k ? m.k : m.rows) *= int4_per_word;
  (along_k ? m.row_stride : m.k_stride) *= int4_per_word;
  m.stride *= int4_per_word;
  return m;
}

bool converts(DType from, DType to) {
  if (is_activation_dtype(from)) return is_activation_dtype(to);
  return (from == DType::i8 || from == DType::i32) && (is_activation_dtype(to) || to == DType::i8);
}

std::string reject_vector(const char* what, const TensorView& vector, bool stored, const Matrices& m) {
  if (!vector.present()) return {};
  if (vector.rank == 3 && stored && vector.contiguous() && vector.shape[0] == m.experts && vector.shape[1] > 0 &&
      m.k % vector.shape[1] == 0 && vector.shape[2] == m.rows)
    return {};
  return fmt::format("{}: expected a float type and [{}, G, {}] with G a divisor of {}, got {}", what, m.experts,
                     m.rows, m.k, vector.describe());
}

pack_weights_args kernel_args(const Args& args, const Matrices& m, const TensorView& packed) {
  const std::int64_t end = args.first_column + m.rows;
  return {.source_first = first_element(args.source),
          .scale_first = first_element(args.scale),
          .offset_first = first_element(args.offset),
          .packed_first = first_element(packed),
          .source_stride = m.stride,
          .row_stride = m.row_stride,
          .k_stride = m.k_stride,
          .scale_stride = args.scale.stride[0],
          .packed_stride = packed.stride[0],
          .scale_dtype = any_dtype(args.scale.dtype),
          .offset_dtype = any_dtype(args.offset.dtype),
          .group_size = int_of(args.scale.present() ? m.k / args.scale.shape[1] : m.k),
          .rows = int_of(m.rows),
          .k = int_of(m.k),
          .first_column = int_of(args.first_column),
          .zero_first = end == args.packed.n ? int_of(end) : std::numeric_limits<std::int32_t>::max(),
          .pad = 0};
}

}  // namespace

std::string reject(const Args& args, const Device&) {
  if (std::string reason = args.packed.reject(); !reason.empty()) return reason;
  const DType from = args.source.dtype;
  const DType to = storage_dtype(args.packed.type).value_or(DType::u8);
  if ((!is_activation_dtype(to) && to != DType::i8) || args.packed.grouped())
    return fmt::format("packed: expected f32, f16, bf16 or i8 without scales, got {}", name(args.packed.type));
  if (args.packed.layout == PanelLayout::k_major) return "packed: expected n_major or k_words panels, got k_major";
  std::string text = fmt::format("source: expected [rows, {}] of a type that converts to {}, got {}", args.packed.k,
                                 name(to), args.source.describe());
  if ((args.source.rank != 2 && args.source.rank != 3) || !converts(from, to)) return text;
  const Matrices m = matrices_of(args);
  if (m.k != args.packed.k) return text;
  if (from == DType::i32 && m.row_stride != 1 && m.k_stride != 1)
    return fmt::format("source: words of int4 must be neighbours along rows or K, strides are {} and {}", m.row_stride,
                       m.k_stride);
  if (args.expert < 0 || args.expert > args.packed.experts - m.experts)
    return fmt::format("expert: [{}, {} + {}) is not in [0, {})", args.expert, args.expert, m.experts,
                       args.packed.experts);
  if (args.first_column < 0 || args.first_column > args.packed.n - m.rows)
    return fmt::format("first_column: rows [{}, {} + {}) leave the {} columns", args.first_column, args.first_column,
                       m.rows, args.packed.n);
  if (from == DType::i32 && args.first_column % int4_per_word != 0)
    return fmt::format("first_column: {} is no multiple of {}, the int4 of a word", args.first_column, int4_per_word);
  if ((args.scale.present() && (is_activation_dtype(from) || to == DType::i8)) ||
      (args.offset.present() && !args.scale.present()))
    return fmt::format("scale, offset: expected for integers that become floats, offset with scale; got {}, {}",
                       args.scale.describe(), args.offset.describe());
  if (std::string reason = reject_vector("scale", args.scale, is_scale_dtype(args.scale.dtype), m); !reason.empty())
    return reason;
  if (std::string reason = reject_vector("offset", args.offset, is_activation_dtype(args.offset.dtype), m);
      !reason.empty())
    return reason;
  if (args.offset.present() && args.offset.shape[1] != args.scale.shape[1])
    return fmt::format("offset: expected the groups of scale {}, got {}", args.scale.describe(),
                       args.offset.describe());
  return {};
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args, *stream.device);
  require(reason.empty(), "pack_weights: {}", reason);
  // On a CPU, long blocks of k keep the memory streams of the one work-item going. A GPU wants many work-groups.
  const bool explicit_vectors = stream.device->caps.preferred_float_width >= 4;
  const std::int64_t lanes = explicit_vectors ? 1 : 64, k_block = explicit_vectors ? 1024 : 64;
  const Matrices m = matrices_of(args);
  const TensorView packed = args.packed.view().rows(args.expert, m.experts);
  const std::int64_t end = args.first_column + m.rows;
  const std::int64_t touched =
      m.rows == 0 ? 0 : PackedWeights::panels(end) - args.first_column / PackedWeights::panel_columns;
  const OperatorCost work = cost(args);
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  launch(stream,
         {&source::pack_weights,
          fmt::format("-DLANES={} -DK_BLOCK={} -DSOURCE_DTYPE={}{}{}", lanes, k_block,
                      args.source.dtype == DType::i32 ? "i4x8" : name(args.source.dtype),
                      dtype_option("PACKED_DTYPE", packed), grouped_gemm::layout_option(args.packed.layout)),
          "pack_weights"},
         {{size(quotient_up(m.k, k_block) * lanes), size(touched), size(m.experts)}, {size(lanes), 1, 1}}, submit,
         {"pack_weights", lanes == 1 ? "panel_per_item" : "panel_per_group", args.source.describe(), work.bytes,
          work.flops},
         args.source, args.scale, args.offset, packed, kernel_args(args, m, packed));
}

OperatorCost cost(const Args& args) {
  const Matrices m = matrices_of(args);
  const auto elements = static_cast<std::uint64_t>(m.experts * m.rows * m.k);
  return {args.source.size_bytes() + elements * static_cast<std::uint64_t>(bits(args.packed.type)) / 8, 0};
}

}  // namespace moecl::pack_weights
