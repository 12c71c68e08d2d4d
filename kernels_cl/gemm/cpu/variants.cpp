#include "kernels_cl/gemm/variant.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_amx, grouped_gemm_digits, grouped_gemm_dot, grouped_gemm_tile, grouped_gemm_ymm;
}

namespace moecl::grouped_gemm::cpu {
namespace {

constexpr const char* integers =
    "i8 without zero point x i8 or i4, scales for groups of a multiple of 16 in K or none, on AVX-512 VNNI";
constexpr const char* pairs =
    "i8 without zero point x i8 or i4, scales for groups of a multiple of 16 in K or none, on AVX-512";
constexpr const char* numbers =
    "bf16 x bf16 or codes, scales for groups of a multiple of 16 in K or none, on AVX-512 BF16 and VBMI";
constexpr const char* numbers_or_codes =
    "bf16 x bf16 or codes, or f8 or f4 x codes without zero points, K even and the rows' groups of whole ones of the "
    "weights, whose scales are for groups of a multiple of 16 in K or none, on AVX-512 BF16 and VBMI";
bool is_numbers_product(const Args& args) { return is_bf16_product(args) || is_code_rows_product(args); }
constexpr Extension vnni{[](const DeviceCaps&caps) { return caps.has_avx512_vnni; }, &is_vnni_product, integers},
    avx512{[](const DeviceCaps&caps) { return caps.has_avx512; }, &is_vnni_product, pairs},
    bf16{[](const DeviceCaps&caps) { return caps.has_avx512_bf16; }, &is_numbers_product, numbers_or_codes},
    amx_int8{[](const DeviceCaps&caps) { return caps.has_amx_int8; }, &is_vnni_product, integers},
    amx_bf16{[](const DeviceCaps&caps) { return caps.has_amx_bf16; }, &is_bf16_product, numbers};

constexpr const char* digits =
    "f16 or bf16 x i4 or f4_e2m1 in k_words, scales for groups of a multiple of 16 in K or none, on AVX2";
constexpr const char* not_in_order = "anything but scales for groups of K in any order or not in sixteens, on AVX2";
constexpr const char* shorter_integers =
    "i8 without zero point x i8 or i4, scales for groups of a multiple of 16 in K or none, on AVX-VNNI without AVX-512";
/// Not offered with AVX-512, which has more registers and lanes.
constexpr Extension avx2{[](const DeviceCaps&caps) { return caps.has_avx2 && !caps.has_avx512; }, &is_avx2_product,
                         not_in_order},
    avx_vnni{[](const DeviceCaps&caps) { return caps.has_avx_vnni && !caps.has_avx512; }, &is_vnni_product,
             shorter_integers},
    avx2_digits{[](const DeviceCaps&caps) { return caps.has_avx2 && !caps.has_avx512; }, &is_digits_product, digits},
    avx_vnni_digits{[](const DeviceCaps&caps) { return caps.has_avx_vnni && !caps.has_avx512; }, &is_digits_product,
                    digits};
constexpr const char* integers_on_arm =
    "i8 without zero point x i8 or i4, scales for groups of a multiple of 16 in K or none, on Arm's products of bytes";
constexpr Extension neon_i8mm{[](const DeviceCaps&caps) { return caps.has_neon_i8mm; }, &is_vnni_product,
                              integers_on_arm},
    neon_dot{[](const DeviceCaps&caps) { return caps.has_neon_dot; }, &is_vnni_product, integers_on_arm},
    neon_bf16{[](const DeviceCaps&caps) { return caps.has_neon_bf16; }, &is_bf16_product,
              "bf16 x bf16 or codes, scales for groups of a multiple of 16 in K or none, on Arm's products of bf16"};

/// Local memory per row: its sums in a panel, and its start.
constexpr std::uint64_t row_bytes = 64 * 4 + 8;
constexpr std::uint64_t sums_bytes(std::uint64_t rows, std::uint64_t panels) { return panels * rows * 64 * 4; }
/// grouped_gemm_amx: the sums of its panels, a block of steps, its rows as tiles, and the sums and scales of a run.
constexpr std::uint64_t amx_bytes = sums_bytes(192, 4) + 32 * 256 + 192 * (2048 + 8) + 9216;
/// grouped_gemm_dot: its rows with their initial totals, a block of steps, and the scales of runs.
constexpr std::uint64_t dot_bytes = 96 * (row_bytes + 64) + 256 * 256 + 65 * 512;
/// The same for rows of codes: also a block of each row as bf16 numbers, and the row's scales in the block's runs.
constexpr std::uint64_t dot_numbers_bytes = dot_bytes + 96 * (256 + 33) * 4;
/// grouped_gemm_ymm: its rows and a block of each, a block of steps, and the scales and row sums of runs.
constexpr std::uint64_t ymm_bytes = 96 * (row_bytes + 256 + 17 * 4) + 64 * 256 + 17 * 512;
/// grouped_gemm_digits: its rows, their digits in a block, a block of steps, and the scales of runs.
constexpr std::uint64_t digits_bytes(std::uint64_t panels) {
  return sums_bytes(48, panels) + 48 * (8 + 640) + 64 * 128 + 9 * 512 + 64;
}

bool any_operands(const Args&) { return true; }
bool is_bf16_by_bf16(const Args& args) { return args.weights.type == CodeType::bf16; }
bool is_i8_by_i4(const Args& args) { return args.a.dtype == DType::i8 && args.weights.type == CodeType::i4; }
bool is_i8_by_integers(const Args& args) { return args.a.dtype == DType::i8 && is_integer(args.weights.type); }

constexpr Kernel digits_kernel(const Variant& variant, const Extension& extension, const char* options) {
  return {.variant = variant,
          .source = &source::grouped_gemm_digits,
          .extension = &extension,
          .options = options,
          .tile_rows = 48,
          .panels = 4,
          .work_items = 1,
          .local_mem_bytes = digits_bytes(4),
          .gated_bytes = sums_bytes(48, 4),
          .min_float_width = 8,
          .activates = true,
          .k_words = &any_operands,
          .faster_in_words = &any_operands};
}

constexpr Kernel neon_kernel(const Variant& variant, const Extension& extension, const char* options) {
  return {.variant = variant,
          .source = &source::grouped_gemm_ymm,
          .extension = &extension,
          .options = options,
          .tile_rows = 96,
          .work_items = 1,
          .local_mem_bytes = ymm_bytes,
          .gated_bytes = sums_bytes(96, 1),
          .min_float_width = 4,
          .activates = true,
          .k_words = &any_operands,
          .faster_in_words = &is_i8_by_integers};
}

constexpr Kernel all[] = {
    {.variant = {"amx_int8", "a CPU with AMX: products of i8 with i8 or i4, 16 x 16 sums in a tile register"},
     .source = &source::grouped_gemm_amx,
     .extension = &amx_int8,
     .options = " -DBLOCK_STEPS=32 -DA_STEPS=512 -DSIGNED_STEPS=1",
     .tile_rows = 192,
     .panels = 4,
     .work_items = 1,
     .local_mem_bytes = amx_bytes,
     .gated_bytes = sums_bytes(192, 4),
     .min_float_width = 16,
     .activates = true},
    {.variant = {"amx_bf16", "a CPU with AMX: products of bf16 with bf16 or codes, 16 x 16 sums in a tile register"},
     .source = &source::grouped_gemm_amx,
     .extension = &amx_bf16,
     .options = " -DBLOCK_STEPS=32 -DA_STEPS=512",
     .tile_rows = 192,
     .panels = 4,
     .work_items = 1,
     .local_mem_bytes = amx_bytes,
     .gated_bytes = sums_bytes(192, 4),
     .min_float_width = 16,
     .activates = true},
    {.variant = {"avx512_vnni",
                 "a CPU with AVX-512 VNNI: products of i8 with i8 or i4 in fours of k, 6 x 64 sums in registers"},
     .source = &source::grouped_gemm_dot,
     .extension = &vnni,
     .options = " -DBLOCK_STEPS=256",
     .tile_rows = 96,
     .panels = 4,
     .work_items = 1,
     .local_mem_bytes = dot_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 16,
     .activates = true,
     .k_words = &any_operands,
     .faster_in_words = &is_i8_by_integers},
    {.variant =
         {"avx512_bf16",
          "a CPU with AVX-512 BF16: products of bf16 or codes with such in pairs of k, 6 x 64 sums in registers"},
     .source = &source::grouped_gemm_dot,
     .extension = &bf16,
     .options = " -DBLOCK_STEPS=256",
     .tile_rows = 96,
     .panels = 4,
     .work_items = 1,
     .local_mem_bytes = dot_numbers_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 16,
     .activates = true,
     .k_words = &is_bf16_by_bf16},
    {.variant = {"avx_vnni",
                 "a CPU with AVX-VNNI: products of i8 with i8 or i4 in fours of k, 6 x 16 sums in registers"},
     .source = &source::grouped_gemm_ymm,
     .extension = &avx_vnni,
     .options = " -DBLOCK_BYTES_OF_PART=4096 -DAVX_VNNI=1",
     .tile_rows = 96,
     .work_items = 1,
     .local_mem_bytes = ymm_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 8,
     .activates = true,
     .k_words = &any_operands,
     .faster_in_words = &is_i8_by_integers},
    {.variant = {"avx512", "a CPU with AVX-512: products of i8 with i8 or i4 in pairs of k, 6 x 32 sums in registers"},
     .source = &source::grouped_gemm_ymm,
     .extension = &avx512,
     .options = " -DBLOCK_BYTES_OF_PART=4096 -DAVX512=1",
     .tile_rows = 96,
     .work_items = 1,
     .local_mem_bytes = ymm_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 16,
     .activates = true,
     .k_words = &any_operands,
     .faster_in_words = &is_i8_by_i4},
    digits_kernel({"avx_vnni_digits",
                   "a CPU with AVX-VNNI: products of f16 or bf16 with i4 or f4 in words, rows as digits of 8 bits"},
                  avx_vnni_digits, " -DAVX_VNNI=1"),
    digits_kernel(
        {"avx2_digits", "a CPU with AVX2: products of f16 or bf16 with i4 or f4 in words, rows as digits of 8 bits"},
        avx2_digits, ""),
    {.variant =
         {"avx2",
          "a CPU with AVX2: products of i8 with i8 or i4 in pairs of k, others in f32, 6 x 16 sums in registers"},
     .source = &source::grouped_gemm_ymm,
     .extension = &avx2,
     .options = " -DBLOCK_BYTES_OF_PART=4096",
     .tile_rows = 96,
     .work_items = 1,
     .local_mem_bytes = ymm_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 8,
     .activates = true,
     .k_words = &any_operands,
     .faster_in_words = &is_i8_by_i4},
    neon_kernel(
        {"neon_i8mm", "an Arm CPU with i8mm: products of i8 with i8 or i4, 2 x 8 by 8 x 2, 6 x 16 sums in registers"},
        neon_i8mm, " -DBLOCK_BYTES_OF_PART=4096 -DNEON_DOT=1 -DNEON_I8MM=1"),
    neon_kernel({"neon_dot",
                 "an Arm CPU with dot products: products of i8 with i8 or i4 in fours of k, 6 x 16 sums in registers"},
                neon_dot, " -DBLOCK_BYTES_OF_PART=4096 -DNEON_DOT=1"),
    neon_kernel({"neon_bf16",
                 "an Arm CPU with bf16: products of bf16 with bf16 or codes, 2 x 4 by 4 x 2, 6 x 16 sums in registers"},
                neon_bf16, " -DBLOCK_BYTES_OF_PART=4096 -DNEON_BF16=1"),
    {.variant = {"t0_tile",
                 "a CPU with 16-lane registers: one work-item a panel and row tile, 6 x 64 sums in registers"},
     .source = &source::grouped_gemm_tile,
     .options = " -DK_BLOCK=128 -DREGISTER_PARTS=4",
     .tile_rows = 96,
     .work_items = 1,
     .local_mem_bytes = 96 * row_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 4,
     .good_float_width = 16,
     .activates = true,
     .k_words = &any_operands},
    {.variant = {"t0_tile16", "a CPU with shorter registers: the same in 6 x 16 sums"},
     .source = &source::grouped_gemm_tile,
     .options = " -DK_BLOCK=512 -DREGISTER_PARTS=1",
     .tile_rows = 96,
     .work_items = 1,
     .local_mem_bytes = 96 * row_bytes,
     .gated_bytes = sums_bytes(96, 1),
     .min_float_width = 4,
     .activates = true,
     .k_words = &any_operands},
};

}  // namespace

std::span<const Kernel> variants() { return all; }

}  // namespace moecl::grouped_gemm::cpu
