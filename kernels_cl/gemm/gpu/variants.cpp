#include "kernels_cl/gemm/variant.hpp"

namespace moecl::source {
extern const ProgramSource grouped_gemm_gemv, grouped_gemm_local;
}

namespace moecl::grouped_gemm::gpu {
namespace {

bool any_operands(const Args&) { return true; }

constexpr Kernel all[] = {
    {.variant = {"t0_gemv", "few rows on a GPU: 8 slices of K a panel, weights read once"},
     .source = &source::grouped_gemm_gemv,
     .options = " -DSLICES=8",
     .tile_rows = 8,
     .work_items = 128,
     .local_mem_bytes = 8 * 8 * 64 * 4,
     .k_major = true,
     .k_words = &any_operands},
    {.variant = {"t0_local", "many rows on a GPU: 64 x 64 sums from local memory"},
     .source = &source::grouped_gemm_local,
     .tile_rows = 64,
     .work_items = 256,
     .local_mem_bytes = 16 * (68 + 64) * 4,
     .k_major = true,
     .k_words = &any_operands},
};

}  // namespace

std::span<const Kernel> variants() { return all; }

}  // namespace moecl::grouped_gemm::gpu
