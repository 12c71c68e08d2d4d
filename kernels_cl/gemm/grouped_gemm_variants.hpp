#pragma once
// The variant table of the grouped GEMM.
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_tile, grouped_gemm_dot, grouped_gemm_amx, grouped_gemm_gemv, grouped_gemm_local,
    grouped_gemm_mma, grouped_gemm_wgmma, grouped_gemm_codes, grouped_gemm_wgmma_codes;
}

namespace moecl::grouped_gemm {

/// What `reject` says of the operands, whatever the variant.
std::string reject_operands(const Args& args);
/// -D definitions of the types of rows and weights and of their scales for groups of K.
std::string operand_options(const Args& args);

/// What the dot products of a CPU multiply: scales for groups of K stand in runs of it.
inline bool has_runs_of_groups(const Args& args) {
  return args.a_group == 0 &&
         (!args.weights.grouped() || (!args.weights.group_index.present() && args.weights.group % 16 == 0));
}
inline bool is_vnni_product(const Args& args) {
  return args.a.dtype == DType::i8 && (args.weights.type == CodeType::i8 || args.weights.type == CodeType::i4) &&
         args.a_zero_point == 0 && has_runs_of_groups(args);
}
inline bool is_bf16_product(const Args& args) {
  const CodeType type = args.weights.type;
  return args.a.dtype == DType::bf16 && (type == CodeType::bf16 || bits(type) <= 8) && has_runs_of_groups(args);
}

/// Whether both start at the same element.
inline bool is_same(const TensorView& x, const TensorView& y) {
  return x.buffer.handle == y.buffer.handle && x.offset_elements() == y.offset_elements() && x.dtype == y.dtype;
}
/// Whether every row starts at a multiple of so many elements.
inline bool is_aligned(const TensorView& rows, std::int64_t elements) {
  return rows.stride[0] % elements == 0 && rows.offset_elements() % static_cast<std::uint64_t>(elements) == 0;
}
/// Whether every row starts at 16 bytes.
inline bool is_aligned_to_16_bytes(const TensorView& rows) {
  return is_aligned(rows, 16 / static_cast<std::int64_t>(size_bytes(rows.dtype)));
}
/// From one column's value to the next one's; 0 where all columns share it.
inline std::int64_t column_stride(const TensorView& vector) { return vector.shape[1] == 1 ? 0 : vector.stride[1]; }
/// What tensor cores multiply, in the type of both sides.
inline bool is_tensor_core_product(const Args& args) {
  const bool f16 = args.a.dtype == DType::f16 && args.weights.type == CodeType::f16;
  return (f16 || (args.a.dtype == DType::bf16 && args.weights.type == CodeType::bf16)) && args.a_group == 0 &&
         !args.weights.grouped() && !args.k_ends.present() && is_activation_dtype(args.out.dtype);
}

inline bool is_f8(DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; }
/// Whether scales for such groups of K fit the steps that tensor cores take with rows of so many bits.
inline bool is_step_group(std::int64_t group, std::int64_t row_bits) {
  const std::int64_t step = 1024 / row_bits, product = 256 / row_bits;
  return group == 0 || (group % product == 0 && (step % group == 0 || group % step == 0));
}
/// What tensor cores multiply where the weights are codes, in the type of the rows.
inline bool is_code_product(const Args& args) {
  const PackedWeights& weights = args.weights;
  const auto one_of = [&weights](std::initializer_list<CodeType> types) {
    return std::find(types.begin(), types.end(), weights.type) != types.end();
  };
  const bool wide = args.a.dtype == DType::f16 || args.a.dtype == DType::bf16;
  const bool types =
      (args.a.dtype == DType::i8 && args.a_zero_point == 0 && one_of({CodeType::i8, CodeType::i4})) ||
      (args.a.dtype == DType::f8_e4m3 && one_of({CodeType::f8_e4m3})) ||
      (args.a.dtype == DType::f8_e5m2 && one_of({CodeType::f8_e5m2})) ||
      (wide && one_of({CodeType::i8, CodeType::i4, CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f4_e2m1}));
  const std::int64_t bits = wide ? 16 : 8, group = weights.grouped() ? weights.group : 0;
  const auto [fewer, more] = std::minmax(group, args.a_group);
  const bool groups = is_step_group(group, bits) && is_step_group(args.a_group, bits) &&
                      (fewer == 0 || more % fewer == 0) && !weights.group_index.present() &&
                      (!weights.zero.present() || (wide && group % 32 == 0));
  return types && groups && !args.k_ends.present() && is_activation_dtype(args.out.dtype);
}

/// Instructions beside those of T0, and what they multiply.
struct Extension {
  bool (*offered)(const DeviceCaps& caps);
  bool (*multiplies)(const Args& args);
  const char* what;
};
inline constexpr Extension vnni{
    [](const DeviceCaps& caps) { return caps.has_avx512_vnni; }, &is_vnni_product,
    "i8 without zero point x i8 or i4, scales for groups of a multiple of 16 in K or none, on AVX-512 VNNI"};
inline constexpr Extension bf16{
    [](const DeviceCaps& caps) { return caps.has_avx512_bf16; }, &is_bf16_product,
    "bf16 x bf16 or codes, scales for groups of a multiple of 16 in K or none, on AVX-512 BF16 and VBMI"};
inline constexpr Extension amx_int8{[](const DeviceCaps& caps) { return caps.has_amx_int8; }, &is_vnni_product,
                                    vnni.what};
inline constexpr Extension amx_bf16{[](const DeviceCaps& caps) { return caps.has_amx_bf16; }, &is_bf16_product,
                                    bf16.what};
inline constexpr Extension mma{
    [](const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; }, &is_tensor_core_product,
    "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K and k_ends, on NVIDIA "
    "compute capability 8.0"};
inline constexpr Extension wgmma{
    [](const DeviceCaps& caps) { return caps.nv_sm90a; },
    [](const Args& args) { return is_tensor_core_product(args) && is_aligned(args.a, 8); },
    "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K and k_ends, rows of `a` from multiples of 8 "
    "elements, where a driver builds for sm_90a"};

inline constexpr Extension mma_codes{
    [](const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; },
    [](const Args& args) { return size_bytes(args.a.dtype) == 2 && is_code_product(args); },
    "f16 or bf16 x i8, i4, f8 or f4 to f32, f16 or bf16, in groups of K that fit its "
    "steps, on NVIDIA compute capability 8.0"};
inline constexpr Extension mma_i8{[](const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; },
                                  [](const Args& args) { return args.a.dtype == DType::i8 && is_code_product(args); },
                                  "i8 x i8 or i4 to f32, f16 or bf16, in groups of K that fit its steps, on NVIDIA "
                                  "compute capability 8.0"};
inline bool has_groups(const Args& args) { return args.weights.grouped() || args.a_group != 0; }
inline bool is_f8_product(const Args& args) { return is_f8(args.a.dtype) && is_code_product(args); }
inline constexpr Extension mma_f8{[](const DeviceCaps& caps) { return caps.nv_compute_capability >= 89; },
                                  &is_f8_product,
                                  "f8 x f8 of one type to f32, f16 or bf16, in groups of K that fit its steps, on "
                                  "NVIDIA compute capability 8.9"};
inline constexpr Extension mma_f8_rows{
    mma_f8.offered, [](const Args& args) { return is_f8_product(args) && !has_groups(args); },
    "f8 x f8 of one type to f32, f16 or bf16, without groups of K, on NVIDIA compute capability 8.9"};
inline constexpr Extension mma_f8_groups{
    mma_f8.offered, [](const Args& args) { return is_f8_product(args) && has_groups(args); },
    "f8 x f8 of one type to f32, f16 or bf16, with groups of K that fit its steps, on NVIDIA compute capability 8.9"};
/// Rows of codes or 16 bits from multiples of 16 bytes, and panels of multiples of 128.
inline bool is_wgmma_code_product(const Args& args, bool groups) {
  return is_code_product(args) && has_groups(args) == groups && args.weights.k * bits(args.weights.type) % 16 == 0 &&
         is_aligned_to_16_bytes(args.a);
}
inline constexpr Extension wgmma_codes{[](const DeviceCaps& caps) { return caps.nv_sm90a; },
                                       [](const Args& args) { return is_wgmma_code_product(args, false); },
                                       "what nv_sm80_codes, nv_sm80_i8 and nv_sm89_f8 do, without groups of K, rows of "
                                       "`a` from multiples of 16 bytes, K a multiple "
                                       "of 2 (4-bit codes: 4), where a driver builds for sm_90a"};
inline constexpr Extension wgmma_groups{[](const DeviceCaps& caps) { return caps.nv_sm90a; },
                                        [](const Args& args) { return is_wgmma_code_product(args, true); },
                                        "what nv_sm80_codes, nv_sm80_i8 and nv_sm89_f8 do, with groups of K, rows of "
                                        "`a` from multiples of 16 bytes, K a multiple "
                                        "of 2 (4-bit codes: 4), where a driver builds for sm_90a"};

/// Up to here reading the weights costs more than multiplying with them.
inline constexpr std::int64_t gemv_rows = 16;

/// How a variant is compiled and launched. `select` takes the first that fits: of those of extensions, then of T0.
struct Kernel {
  Variant variant;
  const ProgramSource* source;
  const char* name;
  std::int64_t tile_rows;  ///< rows of one expert that a work-group takes
  const char* options;
  std::size_t work_items;         ///< of a work-group
  std::uint64_t local_mem_bytes;  ///< of it; on a CPU a gated activation takes the sums of a second panel
  std::uint32_t min_float_width;  ///< of the vectors that the device prefers
  bool activates = false;         ///< its sums
  const Extension* extension = nullptr;
  std::int64_t most_rows = any_rows;   ///< of an expert, that it is good for, where no table says otherwise
  std::int64_t panels = 1;             ///< of a work-group, on CPUs at most; there a gated activation's come in pairs
  bool persistent = false;             ///< a work-group a compute unit takes tiles in turn
  std::uint32_t good_float_width = 1;  ///< where the device prefers shorter vectors, only a table takes it
  /// Of a tile that a compute unit has alone, for variants of the same operands. Units: 10 us, K = 7168 on an H200
  double tile_time = 1;
};

/// One work-item keeps a tile of sums in its registers: for CPUs whose driver wants vectors.
inline bool is_register_tile(const Kernel& kernel) { return kernel.min_float_width > 1; }
/// Those of tensor_tile.clh.
inline bool on_tensor_cores(const Kernel& kernel) { return kernel.panels > 1 && !is_register_tile(kernel); }
/// A stage of tensor_tile.clh: 64 k of `rows` rows and `panels` panels.
constexpr std::uint64_t stage_bytes(std::uint64_t rows, std::uint64_t panels) { return (rows + panels * 64) * 64 * 2; }
/// The same of codes, for rows of 8 bits.
constexpr std::uint64_t code_stage_bytes(std::uint64_t rows, std::uint64_t panels) {
  return (rows + panels * 64) * 128;
}
/// What grouped_gemm_wgmma has beside its stages: pieces of f32, and barriers.
constexpr std::uint64_t wgmma_bytes = 2 * 2 * 16 * 64 * 4 + 2 * 4 * 8;
/// A stage of grouped_gemm_wgmma_codes with what it has beside it: two barriers, and scales of rows and columns for at
/// most four groups.
constexpr std::uint64_t wgmma_code_stage_bytes(std::uint64_t rows) {
  return code_stage_bytes(rows, 4) + 2 * 8 + 4 * (rows + 4 * 64) * 4;
}

// clang-format off
inline constexpr Kernel kernels[] = {
    {{"amx_int8", "a CPU with AMX: products of i8 with i8 or i4, 16 x 16 sums in a tile register"},
     &source::grouped_gemm_amx, "grouped_gemm_amx", 192, " -DBLOCK_STEPS=32 -DA_STEPS=512 -DSIGNED_STEPS=1", 1, 4 * 192 * 256 + 32 * 256 + 192 * (2048 + 8) + 9216, 16, true, &amx_int8, any_rows, 4},
    {{"amx_bf16", "a CPU with AMX: products of bf16 with bf16 or codes, 16 x 16 sums in a tile register"},
     &source::grouped_gemm_amx, "grouped_gemm_amx", 192, " -DBLOCK_STEPS=32 -DA_STEPS=512", 1, 4 * 192 * 256 + 32 * 256 + 192 * (2048 + 8) + 9216, 16, true, &amx_bf16, any_rows, 4},
    {{"avx512_vnni", "a CPU with AVX-512 VNNI: products of i8 with i8 or i4 in fours of k, 6 x 64 sums in registers"},
     &source::grouped_gemm_dot, "grouped_gemm_dot", 96, " -DBLOCK_STEPS=128", 1, 96 * (64 * 4 + 8) + 128 * 256 + 33 * 512, 16, true, &vnni},
    {{"avx512_bf16", "a CPU with AVX-512 BF16: products of bf16 with bf16 or codes in pairs of k, 6 x 64 sums in registers"},
     &source::grouped_gemm_dot, "grouped_gemm_dot", 96, " -DBLOCK_STEPS=128", 1, 96 * (64 * 4 + 8) + 128 * 256 + 33 * 512, 16, true, &bf16},
    {{"t0_tile", "a CPU with 16-lane registers: one work-item a panel and row tile, 6 x 64 sums in registers"},
     &source::grouped_gemm_tile, "grouped_gemm_tile", 96, " -DK_BLOCK=128 -DREGISTER_PARTS=4", 1, 96 * (64 * 4 + 8), 4, true, nullptr, any_rows, 1, false, 16},
    {{"t0_tile16", "a CPU with shorter registers: the same in 6 x 16 sums"},
     &source::grouped_gemm_tile, "grouped_gemm_tile", 96, " -DK_BLOCK=512 -DREGISTER_PARTS=1", 1, 96 * (64 * 4 + 8), 4, true},
    {{"t0_gemv", "few rows on a GPU: 8 slices of K a panel, weights read once"},
     &source::grouped_gemm_gemv, "grouped_gemm_gemv", 8, " -DSLICES=8", 128, 8 * 8 * 64 * 4, 1, false, nullptr, gemv_rows},
    {{"t0_local", "many rows on a GPU: 64 x 64 sums from local memory"},
     &source::grouped_gemm_local, "grouped_gemm_local", 64, "", 256, 16 * (68 + 64) * 4, 1},
    {{"nv_sm80_16", "few rows on NVIDIA tensor cores: f16 or bf16 on both sides, 16 x 128 sums"},
     &source::grouped_gemm_mma, "grouped_gemm_mma", 16, " -DSTAGES=4", 128, 4 * stage_bytes(16, 2), 1, true, &mma, 12, 2, false, 1, 3.2},
    {{"nv_sm90a_144", "more rows on Hopper's: warp groups that copy and multiply, up to 144 x 256 sums"},
     &source::grouped_gemm_wgmma, "grouped_gemm_wgmma", 144, " -DSTAGES=4", 384, 4 * stage_bytes(144, 4) + wgmma_bytes, 1, true, &wgmma, 512, 4, true, 1, 7},
    {{"nv_sm90a_160", "many rows: the same in up to 160 x 256 sums"},
     &source::grouped_gemm_wgmma, "grouped_gemm_wgmma", 160, " -DSTAGES=4", 384, 4 * stage_bytes(160, 4) + wgmma_bytes, 1, true, &wgmma, any_rows, 4, true, 1, 8.5},
    {{"nv_sm80_64", "many rows where wgmma is not: 64 x 128 sums"},
     &source::grouped_gemm_mma, "grouped_gemm_mma", 64, " -DSTAGES=4", 256, 4 * stage_bytes(64, 2), 1, true, &mma, any_rows, 2, false, 1, 6.2},
    {{"nv_sm80_codes_16", "few rows of 16 bits on NVIDIA tensor cores: codes of 4 or 8 bits as the left operand, 128 x 16 sums"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 16, " -DSTAGES=4", 128, 4 * code_stage_bytes(16, 2) + 64, 1, true, &mma_codes, 16, 2, false, 1, 2.8},
    {{"nv_sm80_i8_16", "few rows of i8 with i8 or i4"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 16, " -DSTAGES=4", 128, 4 * code_stage_bytes(16, 2) + 64, 1, true, &mma_i8, 11, 2, false, 1, 1.8},
    {{"nv_sm89_f8_16", "few rows of f8 with f8"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 16, " -DSTAGES=4", 128, 4 * code_stage_bytes(16, 2) + 64, 1, true, &mma_f8_rows, 11, 2, false, 1, 2.6},
    {{"nv_sm89_f8_groups_16", "few rows of f8 with f8, with scales for groups of K"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 16, " -DSTAGES=4", 128, 4 * code_stage_bytes(16, 2) + 64, 1, true, &mma_f8_groups, 2, 2, false, 1, 3.3},
    {{"nv_sm90a_codes_64", "more rows on Hopper's: codes of 4 or 8 bits, 256 x 64 sums"},
     &source::grouped_gemm_wgmma_codes, "grouped_gemm_wgmma_codes", 64, " -DSTAGES=4", 384, 4 * wgmma_code_stage_bytes(64), 1, true, &wgmma_codes, 56, 4, true, 1, 2.8},
    {{"nv_sm90a_codes_128", "many rows: the same in 256 x 128 sums"},
     &source::grouped_gemm_wgmma_codes, "grouped_gemm_wgmma_codes", 128, " -DSTAGES=4", 384, 4 * wgmma_code_stage_bytes(128), 1, true, &wgmma_codes, any_rows, 4, true, 1, 3.9},
    {{"nv_sm90a_groups_64", "with scales for groups of K: 256 x 64 sums"},
     &source::grouped_gemm_wgmma_codes, "grouped_gemm_wgmma_codes", 64, " -DSTAGES=4", 384, 4 * wgmma_code_stage_bytes(64), 1, true, &wgmma_groups, 96, 4, true, 1, 4.3},
    {{"nv_sm90a_groups_128", "many rows with scales for groups of K: 256 x 128 sums"},
     &source::grouped_gemm_wgmma_codes, "grouped_gemm_wgmma_codes", 128, " -DSTAGES=4", 384, 4 * wgmma_code_stage_bytes(128), 1, true, &wgmma_groups, any_rows, 4, true, 1, 7.2},
    {{"nv_sm80_codes_64", "many rows of 16 bits with codes where wgmma is not: 128 x 64 sums"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 64, " -DSTAGES=4", 128, 4 * code_stage_bytes(64, 2) + 256, 1, true, &mma_codes, any_rows, 2, false, 1, 4.1},
    {{"nv_sm80_i8_64", "many rows of i8 where wgmma is not"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 64, " -DSTAGES=4", 128, 4 * code_stage_bytes(64, 2) + 256, 1, true, &mma_i8, any_rows, 2, false, 1, 3.2},
    {{"nv_sm89_f8_64", "many rows of f8 with f8 where wgmma is not"},
     &source::grouped_gemm_codes, "grouped_gemm_codes", 64, " -DSTAGES=4", 128, 4 * code_stage_bytes(64, 2) + 256, 1, true, &mma_f8, any_rows, 2, false, 1, 7},
};
// clang-format on

/// Whether slices of K may have work-groups of their own, which hand over a tile of sums.
inline bool slices_k(const Kernel& kernel) { return kernel.extension == &mma; }
inline std::uint64_t sums_bytes(const Kernel& kernel) {
  return static_cast<std::uint64_t>(kernel.tile_rows * kernel.panels * PackedWeights::panel_columns) * 4;
}
/// What its tiles quantize whole: 16 columns of a warp at least, of half of a gated activation's panels.
inline std::int64_t quantized_columns(const Kernel& kernel) {
  return kernel.extension == &wgmma_groups ? kernel.panels / 2 * PackedWeights::panel_columns : 0;
}
/// What quantized_store.clh has in local memory: magnitudes for each of eight warps, and three numbers of a scale.
inline std::uint64_t quantization_bytes(const Kernel& kernel, std::int64_t group) {
  return static_cast<std::uint64_t>(kernel.tile_rows * (8 + quantized_columns(kernel) / group * 3) * 4);
}

inline const Kernel* find(std::string_view variant) {
  const auto* found =
      std::find_if(std::begin(kernels), std::end(kernels), [&](const Kernel& k) { return variant == k.variant.name; });
  return found != std::end(kernels) ? found : nullptr;
}

inline std::uint64_t local_bytes(const Kernel& kernel, bool gated) {
  constexpr std::int64_t row_bytes = PackedWeights::panel_columns * 4;
  const bool keeps_sums = gated && !on_tensor_cores(kernel);
  return kernel.local_mem_bytes +
         (keeps_sums ? static_cast<std::uint64_t>(kernel.panels * kernel.tile_rows * row_bytes) : 0);
}

}  // namespace moecl::grouped_gemm
