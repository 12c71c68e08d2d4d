#pragma once
// How a product is divided into tiles and K-slices, and the choice of its variant.
#include "kernels_cl/gemm/variant.hpp"
#include "runtime/quotient.hpp"

namespace moecl::grouped_gemm {

/// Upper bound of the number of row tiles: each expert may have one partial tile.
inline std::int64_t row_tiles_of(const Kernel& kernel, Expected expected) {
  const std::int64_t partial = std::min(expected.experts, expected.rows);
  return partial + (expected.rows - partial) / kernel.tile_rows;
}
inline Expected all_of(const Args& args) { return {args.out.shape[0], products_of(args)}; }
/// Number of column tiles. With a gated activation, a tile on tensor cores contains the gate and up columns of its
/// outputs. A CPU's work-item takes a panel of each for every panel of `out`.
inline std::int64_t column_tiles_of(const Kernel& kernel, const Args& args) {
  const std::int64_t n = kernel.tensor_cores ? args.weights.n : output_width(args);
  return quotient_up(n, tile_columns(kernel));
}
/// Tiles of rows and columns.
inline std::int64_t tiles_of(const Kernel& kernel, const Args& args, Expected expected) {
  return row_tiles_of(kernel, expected) * column_tiles_of(kernel, args);
}
/// Bytes of a tile's sums, which a K-slice hands over.
inline std::uint64_t sums_bytes(const Kernel& kernel) {
  return static_cast<std::uint64_t>(kernel.tile_rows * tile_columns(kernel)) * 4;
}
/// K-slices, each of at least four K-steps; more than 1 only with scratch and fewer tiles than compute units.
std::int64_t slices_of(const Kernel& kernel, const Args& args, const DeviceCaps& caps);

/// The variant of a product and why it was chosen. Null: no variant has the name that `config` gives.
struct Choice {
  const Kernel* kernel;
  std::string why;
};
Choice choose(const Args& args, const Config& config, const Device& device);
/// Key by which a device remembers that a variant does not build for such operands.
std::string failing(const Kernel& kernel, const Args& args);

}  // namespace moecl::grouped_gemm
