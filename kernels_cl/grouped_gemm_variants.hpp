#pragma once
// The variant table of the grouped GEMM.
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <string_view>

#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_tile, grouped_gemm_dot, grouped_gemm_gemv, grouped_gemm_local;
}

namespace moecl::grouped_gemm {

/// What the dot products of a CPU multiply, without scales for groups of K.
inline bool is_vnni_product(const Args& args) {
  return args.a.dtype == DType::i8 && (args.weights.type == CodeType::i8 || args.weights.type == CodeType::i4) &&
         args.a_zero_point == 0 && args.a_group == 0 && !args.weights.grouped();
}
inline bool is_bf16_product(const Args& args) {
  return args.a.dtype == DType::bf16 && args.weights.type == CodeType::bf16 && args.a_group == 0 &&
         !args.weights.grouped();
}

/// Instructions beside those of T0, and what they multiply.
struct Extension {
  bool DeviceCaps::*offered;
  bool (*multiplies)(const Args& args);
  const char* what;
};
inline constexpr Extension vnni{&DeviceCaps::has_avx512_vnni, &is_vnni_product,
                                "i8 without zero point x i8 or i4, without groups of K, on AVX-512 VNNI"};
inline constexpr Extension bf16{&DeviceCaps::has_avx512_bf16, &is_bf16_product,
                                "bf16 x bf16, without groups of K, on AVX-512 BF16"};

/// How a variant is compiled and launched.
struct Kernel {
  Variant variant;
  const ProgramSource* source;
  const char* name;
  std::int64_t tile_rows;  ///< rows of one expert that a work-group takes
  const char* options;
  std::size_t work_items;         ///< of a work-group
  std::uint64_t local_mem_bytes;  ///< a gated activation takes the sums of a second panel
  std::uint32_t min_float_width;  ///< of the vectors that the device prefers
  bool activates = false;         ///< its sums
  const Extension* extension = nullptr;
};

// clang-format off
inline constexpr Kernel kernels[] = {
    {{"avx512_vnni", "a CPU with AVX-512 VNNI: products of i8 with i8 or i4 in fours of k, 6 x 64 sums in registers"},
     &source::grouped_gemm_dot, "grouped_gemm_dot", 96, " -DBLOCK_STEPS=128", 1, 96 * 64 * 4 + 128 * 256, 16, true, &vnni},
    {{"avx512_bf16", "a CPU with AVX-512 BF16: products of bf16 in pairs of k, 6 x 64 sums in registers"},
     &source::grouped_gemm_dot, "grouped_gemm_dot", 96, " -DBLOCK_STEPS=128", 1, 96 * 64 * 4 + 128 * 256, 16, true, &bf16},
    {{"t0_tile", "a CPU with 16-lane registers: one work-item a panel and row tile, 6 x 64 sums in registers"},
     &source::grouped_gemm_tile, "grouped_gemm_tile", 96, " -DK_BLOCK=512 -DREGISTER_PARTS=4", 1, 96 * 64 * 4, 4, true},
    {{"t0_tile16", "a CPU with shorter registers: the same in 6 x 16 sums"},
     &source::grouped_gemm_tile, "grouped_gemm_tile", 96, " -DK_BLOCK=512 -DREGISTER_PARTS=1", 1, 96 * 64 * 4, 4, true},
    {{"t0_gemv", "few rows on a GPU: 8 slices of K a panel, weights read once"},
     &source::grouped_gemm_gemv, "grouped_gemm_gemv", 8, " -DSLICES=8", 128, 8 * 8 * 64 * 4, 1},
    {{"t0_local", "many rows on a GPU: 64 x 64 sums from local memory"},
     &source::grouped_gemm_local, "grouped_gemm_local", 64, "", 256, 16 * (68 + 64) * 4, 1},
};
// clang-format on

inline const Kernel* find(std::string_view variant) {
  const auto* found =
      std::find_if(std::begin(kernels), std::end(kernels), [&](const Kernel& k) { return variant == k.variant.name; });
  return found != std::end(kernels) ? found : nullptr;
}

inline std::uint64_t local_bytes(const Kernel& kernel, bool gated) {
  constexpr std::int64_t row_bytes = PackedWeights::panel_columns * 4;
  return kernel.local_mem_bytes + (gated ? static_cast<std::uint64_t>(kernel.tile_rows * row_bytes) : 0);
}

}  // namespace moecl::grouped_gemm
