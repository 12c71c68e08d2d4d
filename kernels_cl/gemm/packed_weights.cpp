#include <moecl/packed_weights.hpp>

#include <limits>

#include "kernels_cl/gemm/panel_order.h"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

bool is_group_scale(DType dtype) { return is_activation_dtype(dtype) || dtype == DType::u8 || dtype == DType::f8_e4m3; }

std::string reject_groups(const PackedWeights& weights) {
  const TensorView &scale = weights.scale, &zero = weights.zero, &index = weights.group_index;
  const std::int64_t panels = PackedWeights::panels(weights.n), groups = scale.shape[2];
  if (scale.rank != 4 || !is_group_scale(scale.dtype) || scale.shape[0] != weights.experts ||
      scale.shape[1] != panels || groups < 1 || scale.shape[3] != PackedWeights::panel_columns || !scale.contiguous())
    return fmt::format("scale of weights: expected f32, f16, bf16, f8_e4m3 or u8 [{}, {}, G, {}], got {}",
                       weights.experts, panels, PackedWeights::panel_columns, scale.describe());
  if (zero.present() && (!is_integer(weights.type) || zero.dtype != DType::i16 || zero.rank != 4 ||
                         zero.shape != scale.shape || !zero.contiguous()))
    return fmt::format("zero of weights: expected i16 of the shape of scale {} beside integers, got {} beside {}",
                       scale.describe(), zero.describe(), name(weights.type));
  if (index.present()) {
    if (index.rank != 2 || index.dtype != DType::i32 || index.shape[0] != weights.experts ||
        index.shape[1] != weights.k || !index.contiguous())
      return fmt::format("group_index of weights: expected i32[{}, {}], got {}", weights.experts, weights.k,
                         index.describe());
  } else if (weights.group < 1 || quotient_up(weights.k, weights.group) != groups) {
    return fmt::format("group of weights: {} columns do not give the {} groups of scale in K = {}", weights.group,
                       groups, weights.k);
  }
  for (const TensorView* view : {&scale, &zero})
    if (view->buffer.offset_bytes % PackedWeights::alignment_bytes != 0)
      return fmt::format("scale of weights: byte offset {} is no multiple of {}", view->buffer.offset_bytes,
                         PackedWeights::alignment_bytes);
  return {};
}

}  // namespace

static_assert(PackedWeights::panel_columns == PANEL_COLUMNS && PackedWeights::k_major_block == K_MAJOR_BLOCK);

const char* name(PanelLayout layout) noexcept {
  return layout == PanelLayout::k_major ? "k_major" : layout == PanelLayout::k_words ? "k_words" : "n_major";
}

PanelLayout panel_layout_named(const std::string& name) {
  for (const PanelLayout layout : {PanelLayout::n_major, PanelLayout::k_major, PanelLayout::k_words})
    if (name == moecl::name(layout)) return layout;
  fail(ErrorCode::invalid_argument, "layout of weights: expected n_major, k_major or k_words, got '{}'", name);
}

std::int64_t PackedWeights::panels(std::int64_t n) noexcept { return quotient_up(n, panel_columns); }

std::uint64_t PackedWeights::size_bytes(CodeType type, std::int64_t experts, std::int64_t n, std::int64_t k) {
  std::int64_t bytes = 0;
  require(experts >= 0 && n >= 0 && k >= 0 && n <= std::numeric_limits<std::int64_t>::max() - panel_columns &&
              !__builtin_mul_overflow(panels(n) * (panel_columns * bits(type) / 8), k, &bytes) &&
              !__builtin_mul_overflow(bytes, experts, &bytes),
          "packed weights: no size for {} experts of [{}, {}] {}", experts, n, k, name(type));
  return static_cast<std::uint64_t>(bytes);
}

TensorView PackedWeights::view() const {
  if (bits(type) >= 8) return {buffer, *storage_dtype(type), {experts, panels(n), k, panel_columns}};
  return {buffer, DType::u8, {experts, panels(n), k, panel_columns * bits(type) / 8}};
}

std::string PackedWeights::reject() const {
  const auto fits = [](std::int64_t value) { return value >= 1 && value <= std::numeric_limits<std::int32_t>::max(); };
  if (type == CodeType::u8 || type == CodeType::u4)
    return fmt::format("weights: {} is packed as {}", name(type), type == CodeType::u8 ? "i8" : "i4");
  if (!fits(experts) || !fits(n) || !fits(k))
    return fmt::format("weights: {} experts of [{}, {}] are not all in [1, 2^31)", experts, n, k);
  if (buffer.size_bytes < size_bytes(type, experts, n, k))
    return fmt::format("weights: {} experts of [{}, {}] {} need {} bytes, their buffer has {}", experts, n, k,
                       name(type), size_bytes(type, experts, n, k), buffer.size_bytes);
  if (buffer.offset_bytes % alignment_bytes != 0)
    return fmt::format("weights: byte offset {} is no multiple of {}", buffer.offset_bytes, alignment_bytes);
  if (layout == PanelLayout::k_major &&
      (bits(type) != 8 || k % k_major_block != 0 || zero.present() || group_index.present()))
    return fmt::format(
        "layout of weights: k_major takes 8-bit codes with K a multiple of {}, without zero points and "
        "group_index, got {} with K = {}, zero {}, group_index {}",
        k_major_block, name(type), k, zero.describe(), group_index.describe());
  if (layout == PanelLayout::k_words &&
      (WORD_BITS % bits(type) != 0 || bits(type) == WORD_BITS || k % (WORD_BITS / bits(type)) != 0))
    return fmt::format(
        "layout of weights: k_words takes 4, 8 or 16 bits with K a multiple of the values in 32, got {} with K = {}",
        name(type), k);
  return grouped() ? reject_groups(*this) : std::string();
}

}  // namespace moecl
