#include "kernels_cl/gemm/variant.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_wgmma, grouped_gemm_wgmma_blocks, grouped_gemm_wgmma_codes;
}

namespace moecl::grouped_gemm::hopper {
namespace {

constexpr auto builds_sm90a = [](const DeviceCaps& caps) { return caps.nv_sm90a; };
/// Products of codes in which rows of `a` start at multiples of 16 bytes and a panel takes a multiple of 128 bytes.
/// `groups`: with scales for groups of K, or without
bool is_code_product_of(const Args& args, bool groups) {
  return is_code_product(args) && !args.slots.present() && has_groups(args) == groups &&
         args.weights.k * bits(args.weights.type) % 16 == 0 && is_aligned_to_16_bytes(args.a);
}

constexpr std::int64_t block_k = 128;

constexpr Extension plain{
    builds_sm90a,
    [](const Args&args) { return is_tensor_core_product(args) && !args.slots.present() && is_aligned(args.a, 8); },
    "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K, k_ends and slots, rows of `a` "
    "from multiples of 8 elements, where a driver builds for sm_90a"},
    codes{builds_sm90a, [](const Args&args) { return is_code_product_of(args, false); },
          "what nv_sm80_codes, nv_sm80_i8 and nv_sm89_f8 do, without groups of K and slots, rows of `a` from multiples "
          "of 16 "
          "bytes, K a multiple of 2 (4-bit codes: 4), where a driver builds for sm_90a"},
    groups{builds_sm90a, [](const Args&args) { return is_code_product_of(args, true); },
           "what nv_sm80_codes, nv_sm80_i8 and nv_sm89_f8 do, with groups of K and without slots, rows of `a` from "
           "multiples of 16 "
           "bytes, K a multiple of 2 (4-bit codes: 4), where a driver builds for sm_90a"},
    blocks{builds_sm90a,
           [](const Args&args) {
             const PackedWeights& weights = args.weights;
             return args.a.dtype == DType::f8_e4m3 && is_code_product_of(args, true) &&
                    weights.layout == PanelLayout::k_major && weights.panel_scales && weights.group == block_k &&
                    (weights.scale.dtype == DType::f32 || weights.scale.dtype == DType::bf16) &&
                    args.a_group == block_k && args.a_scale.dtype == DType::f32;
           },
           "f8_e4m3 x f8_e4m3 with f32 or bf16 scales for groups of 128 K, which whole panels share, in k_major and "
           "without slots, rows of `a` from multiples of 16 bytes, where a driver builds for sm_90a"};

/// Local memory of grouped_gemm_wgmma: stages of 64 k of the rows and four panels, pieces of f32, mbarriers, and the
/// flags of late slices.
constexpr std::uint64_t plain_bytes(std::uint64_t rows) {
  return 4 * (rows + 4 * 64) * 64 * 2 + 2 * 2 * 16 * 64 * 4 + 2 * 4 * 8 + 2 * 4;
}
/// Local memory of grouped_gemm_wgmma_codes: stages of 128 bytes of each row and, for 8-bit codes, of each column, each
/// with two mbarriers, and scales of rows and columns for at most four groups.
constexpr std::uint64_t codes_bytes(std::uint64_t rows) {
  return 4 * ((rows + 4 * 64) * 128 + 2 * 8 + 4 * (rows + 4 * 64) * 4);
}

/// Local memory of grouped_gemm_wgmma_blocks: stages of 128 bytes of each row and column, each with two mbarriers,
/// scales of rows and panels, and its tile; a piece of 16 rows for each of eight warps; two numbers of tiles; the
/// largest magnitudes of both warp groups' 64 rows.
constexpr std::uint64_t blocks_bytes(std::uint64_t rows) {
  return 4 * ((rows + 4 * 64) * 128 + 2 * 8 + (rows + 4) * 4 + 64) + 8 * 16 * 128 + 2 * 4 + 2 * 64 * 4;
}

constexpr Kernel of_plain(Variant variant, std::int64_t rows) {
  return {.variant = variant,
          .source = &source::grouped_gemm_wgmma,
          .extension = &plain,
          .options = " -DSTAGES=4",
          .tile_rows = rows,
          .panels = 4,
          .work_items = 384,
          .local_mem_bytes = plain_bytes(static_cast<std::uint64_t>(rows)),
          .tensor_cores = true,
          .persistent = true,
          .activates = true,
          .k_slices = KSlices::all_wait};
}
constexpr Kernel of_codes(Variant variant, const Extension& extension, std::int64_t rows) {
  return {.variant = variant,
          .source = &source::grouped_gemm_wgmma_codes,
          .extension = &extension,
          .options = " -DSTAGES=4",
          .tile_rows = rows,
          .panels = 4,
          .work_items = 384,
          .local_mem_bytes = codes_bytes(static_cast<std::uint64_t>(rows)),
          .tensor_cores = true,
          .persistent = true,
          .activates = true,
          .quantizes = &extension == &groups,
          .k_major = true};
}

constexpr Kernel of_blocks(Variant variant, std::int64_t rows) {
  return {.variant = variant,
          .source = &source::grouped_gemm_wgmma_blocks,
          .extension = &blocks,
          .options = " -DSTAGES=4",
          .tile_rows = rows,
          .panels = 4,
          .work_items = 384,
          .local_mem_bytes = blocks_bytes(static_cast<std::uint64_t>(rows)),
          .tensor_cores = true,
          .persistent = true,
          .activates = true,
          .quantizes = true,
          .k_major = true};
}

constexpr Kernel all[] = {
    of_plain({"nv_sm90a_144", "more rows on Hopper: producer and consumer warp groups, up to 144 x 256 sums"}, 144),
    of_plain({"nv_sm90a_160", "many rows: the same in up to 160 x 256 sums"}, 160),
    of_codes({"nv_sm90a_codes_64", "more rows on Hopper: codes of 4 or 8 bits, 256 x 64 sums"}, codes, 64),
    of_codes({"nv_sm90a_codes_128", "many rows: the same in 256 x 128 sums"}, codes, 128),
    of_codes({"nv_sm90a_groups_64", "with scales for groups of K: 256 x 64 sums"}, groups, 64),
    of_blocks({"nv_sm90a_blocks_128", "rows of f8 in blocks are the left operand: 128 x 256 sums"}, 128),
    of_codes({"nv_sm90a_groups_128", "many rows with scales for groups of K: 256 x 128 sums"}, groups, 128),
};

}  // namespace

std::span<const Kernel> variants() { return all; }

}  // namespace moecl::grouped_gemm::hopper
