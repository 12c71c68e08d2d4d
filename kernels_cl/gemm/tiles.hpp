#pragma once
// How a product falls into tiles.
#include "kernels_cl/gemm/variant.hpp"
#include "runtime/quotient.hpp"

namespace moecl::grouped_gemm {

/// At most: each expert has one partial tile of rows.
inline std::int64_t row_tiles_of(const Kernel& kernel, Expected expected) {
  const std::int64_t partial = std::min(expected.experts, expected.rows);
  return partial + (expected.rows - partial) / kernel.tile_rows;
}
inline Expected all_of(const Args& args) { return {args.out.shape[0], products_of(args)}; }
/// A gated activation's have gate and up of the same columns; a CPU's work-item takes a panel of each.
inline std::int64_t column_tiles_of(const Kernel& kernel, const Args& args) {
  const std::int64_t n = kernel.tensor_cores ? args.weights.n : output_width(args);
  return quotient_up(n, tile_columns(kernel));
}
/// Tiles of rows and columns.
inline std::int64_t tiles_of(const Kernel& kernel, const Args& args, Expected expected) {
  return row_tiles_of(kernel, expected) * column_tiles_of(kernel, args);
}
/// Of a tile's sums, which a slice of K hands over.
inline std::uint64_t sums_bytes(const Kernel& kernel) {
  return static_cast<std::uint64_t>(kernel.tile_rows * tile_columns(kernel)) * 4;
}
/// Slices of K, each of at least four steps, where scratch is given and tiles are fewer than compute units.
std::int64_t slices_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps);

/// The variant of a product, and why. Null: there is none of the name that `config` has.
struct Choice {
  const Kernel* kernel;
  std::string why;
};
Choice choose(const Args& args, const Config& config, const Device& device);
/// How a device remembers that a variant does not build for such operands.
std::string failing(const Kernel& kernel, const Args& args);

}  // namespace moecl::grouped_gemm
