#pragma once
// The variant table of the grouped GEMM.
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <limits>
#include <string_view>

#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_tile, grouped_gemm_dot, grouped_gemm_gemv, grouped_gemm_local, grouped_gemm_mma,
    grouped_gemm_wgmma;
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

/// Whether every row starts at a multiple of so many elements.
inline bool is_aligned(const TensorView& rows, std::int64_t elements) {
  return rows.stride[0] % elements == 0 && rows.offset_elements() % static_cast<std::uint64_t>(elements) == 0;
}
/// What tensor cores multiply, in the type of both sides.
inline bool is_tensor_core_product(const Args& args) {
  const bool f16 = args.a.dtype == DType::f16 && args.weights.type == CodeType::f16;
  return (f16 || (args.a.dtype == DType::bf16 && args.weights.type == CodeType::bf16)) && args.a_group == 0 &&
         !args.weights.grouped() && !args.k_ends.present() && is_activation_dtype(args.out.dtype);
}

/// Instructions beside those of T0, and what they multiply.
struct Extension {
  bool (*offered)(const DeviceCaps& caps);
  bool (*multiplies)(const Args& args);
  const char* what;
};
inline constexpr Extension vnni{[](const DeviceCaps& caps) { return caps.has_avx512_vnni; }, &is_vnni_product,
                                "i8 without zero point x i8 or i4, without groups of K, on AVX-512 VNNI"};
inline constexpr Extension bf16{[](const DeviceCaps& caps) { return caps.has_avx512_bf16; }, &is_bf16_product,
                                "bf16 x bf16, without groups of K, on AVX-512 BF16"};
inline constexpr Extension mma{
    [](const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; }, &is_tensor_core_product,
    "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K and k_ends, on NVIDIA "
    "compute capability 8.0"};
inline constexpr Extension wgmma{
    [](const DeviceCaps& caps) { return caps.nv_sm90a; },
    [](const Args& args) { return is_tensor_core_product(args) && is_aligned(args.a, 8); },
    "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K and k_ends, rows of `a` from multiples of 8 "
    "elements, where a driver builds for sm_90a"};

inline constexpr std::int64_t any_rows = std::numeric_limits<std::int64_t>::max();

/// How a variant is compiled and launched. Of those that an extension offers, `select` takes the first that fits.
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
  std::int64_t most_rows = any_rows;  ///< of an expert, that it is good for
  std::int64_t panels = 1;            ///< of a work-group
  bool persistent = false;            ///< a work-group a compute unit takes tiles in turn
};

/// A stage of lib/tensor_tile.clh: 64 k of `rows` rows and `panels` panels.
constexpr std::uint64_t stage_bytes(std::uint64_t rows, std::uint64_t panels) { return (rows + panels * 64) * 64 * 2; }
/// What grouped_gemm_wgmma has beside its stages.
constexpr std::uint64_t wgmma_bytes = 8 * 16 * 40 * 4 + 2 * 4 * 8;

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
    {{"nv_sm80_16", "few rows on NVIDIA tensor cores: f16 or bf16 on both sides, 16 x 128 sums"},
     &source::grouped_gemm_mma, "grouped_gemm_mma", 16, " -DSTAGES=4", 128, 4 * stage_bytes(16, 2), 1, false, &mma, 16, 2},
    {{"nv_sm90a_64", "more rows on Hopper's: warp groups that copy and multiply, 64 x 256 sums"},
     &source::grouped_gemm_wgmma, "grouped_gemm_wgmma", 64, " -DSTAGES=4", 384, 4 * stage_bytes(64, 4) + wgmma_bytes, 1, false, &wgmma, 96, 4, true},
    {{"nv_sm90a_128", "many rows: the same in 128 x 256 sums"},
     &source::grouped_gemm_wgmma, "grouped_gemm_wgmma", 128, " -DSTAGES=4", 384, 4 * stage_bytes(128, 4) + wgmma_bytes, 1, false, &wgmma, any_rows, 4, true},
    {{"nv_sm80_64", "many rows where wgmma is not: 64 x 128 sums"},
     &source::grouped_gemm_mma, "grouped_gemm_mma", 64, " -DSTAGES=4", 256, 4 * stage_bytes(64, 2), 1, false, &mma, any_rows, 2},
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
