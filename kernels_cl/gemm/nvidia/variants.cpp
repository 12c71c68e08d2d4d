#include "kernels_cl/gemm/variant.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_mma, grouped_gemm_codes;
}

namespace moecl::grouped_gemm::nvidia {
namespace {

constexpr auto has_sm80 = [](const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; };
constexpr auto has_sm89 = [](const DeviceCaps& caps) { return caps.nv_compute_capability >= 89; };
bool is_f8_product(const Args& args) { return is_f8(args.a.dtype) && is_code_product(args); }

constexpr Extension plain{has_sm80, &is_tensor_core_product,
                          "f16 x f16 or bf16 x bf16 to f32, f16 or bf16, without groups of K and k_ends, on NVIDIA "
                          "compute capability 8.0"},
    codes{has_sm80, [](const Args&args) { return size_bytes(args.a.dtype) == 2 && is_code_product(args); },
          "f16 or bf16 x i8, i4, f8 or f4 to f32, f16 or bf16, in groups of K that fit its "
          "steps, on NVIDIA compute capability 8.0"},
    i8{has_sm80, [](const Args&args) { return args.a.dtype == DType::i8 && is_code_product(args); },
       "i8 x i8 or i4 to f32, f16 or bf16, in groups of K that fit its steps, on NVIDIA "
       "compute capability 8.0"},
    f8{has_sm89, &is_f8_product,
       "f8 x f8 of one type to f32, f16 or bf16, in groups of K that fit its steps, on "
       "NVIDIA compute capability 8.9"},
    f8_rows{has_sm89, [](const Args&args) { return is_f8_product(args) && !has_groups(args); },
            "f8 x f8 of one type to f32, f16 or bf16, without groups of K, on NVIDIA compute capability 8.9"},
    f8_groups{has_sm89, [](const Args&args) { return is_f8_product(args) && has_groups(args); },
              "f8 x f8 of one type to f32, f16 or bf16, with groups of K that fit its steps, on NVIDIA compute "
              "capability 8.9"};

/// Local memory of grouped_gemm_mma: stages of 64 k of the rows and of two panels.
constexpr std::uint64_t plain_bytes(std::uint64_t rows) { return 4 * (rows + 2 * 64) * 64 * 2; }
/// Local memory of grouped_gemm_codes: stages of 128 bytes of each row, with codes of 8 bits, and the rows' sources.
constexpr std::uint64_t codes_bytes(std::uint64_t rows) { return 4 * (rows + 2 * 64) * 128 + 4 * rows; }

constexpr Kernel of_plain(Variant variant, std::int64_t rows, std::size_t work_items) {
  return {.variant = variant,
          .source = &source::grouped_gemm_mma,
          .extension = &plain,
          .options = " -DSTAGES=4",
          .tile_rows = rows,
          .panels = 2,
          .work_items = work_items,
          .local_mem_bytes = plain_bytes(static_cast<std::uint64_t>(rows)),
          .tensor_cores = true,
          .activates = true,
          .k_slices = KSlices::last_waits};
}
constexpr Kernel of_codes(Variant variant, const Extension& extension, std::int64_t rows) {
  return {.variant = variant,
          .source = &source::grouped_gemm_codes,
          .extension = &extension,
          .options = " -DSTAGES=4",
          .tile_rows = rows,
          .panels = 2,
          .work_items = 128,
          .local_mem_bytes = codes_bytes(static_cast<std::uint64_t>(rows)),
          .tensor_cores = true,
          .activates = true,
          .k_major = true};
}

constexpr Kernel all[] = {
    of_plain({"nv_sm80_16", "few rows on NVIDIA tensor cores: f16 or bf16 on both sides, 16 x 128 sums"}, 16, 128),
    of_plain({"nv_sm80_64", "many rows where there is no wgmma: 64 x 128 sums"}, 64, 256),
    of_codes({"nv_sm80_codes_16",
              "few rows of 16 bits on NVIDIA tensor cores: codes of 4 or 8 bits as the left "
              "operand, 128 x 16 sums"},
             codes, 16),
    of_codes({"nv_sm80_i8_16", "few rows of i8 with i8 or i4"}, i8, 16),
    of_codes({"nv_sm89_f8_16", "few rows of f8 with f8"}, f8_rows, 16),
    of_codes({"nv_sm89_f8_groups_16", "few rows of f8 with f8, with scales for groups of K"}, f8_groups, 16),
    of_codes({"nv_sm80_codes_64", "many rows of 16 bits with codes where there is no wgmma: 128 x 64 sums"}, codes, 64),
    of_codes({"nv_sm80_i8_64", "many rows of i8 where there is no wgmma"}, i8, 64),
    of_codes({"nv_sm89_f8_64", "many rows of f8 with f8 where there is no wgmma"}, f8, 64),
};

}  // namespace

std::span<const Kernel> variants() { return all; }

}  // namespace moecl::grouped_gemm::nvidia
