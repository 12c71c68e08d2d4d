#pragma once
#include <moecl/tensor_view.hpp>

#include <cstdint>

namespace moecl {

/// What the experts return for their rows: who multiplies by the router's weights, and who sums.
/// Source: TopKWeightAndReduce of vLLM
enum class ExpertOutput : std::uint8_t {
  rows,           ///< plain results of the products: combine multiplies by the weights, and sums
  weighted_rows,  ///< the experts multiply by RoutedRows::weights: combine sums
  sums            ///< the experts return one sum of weighted rows for each received token: combine only sends it home
};
/// "rows", "weighted_rows", "sums"
const char* name(ExpertOutput output) noexcept;

/// The rows that a strategy's dispatch gives to the local experts: where they are, and to which expert each belongs.
///
/// Standard layout: rows of all local experts concatenated in expert order. Batched layout (rows_per_expert > 0):
/// expert e's rows start at e * rows_per_expert. With `index`, rows are read in place: row j is x[index[j] /
/// index_divisor].
struct RoutedRows {
  TensorView x;        ///< Shape: [N, H]
  TensorView x_scale;  ///< for codes. Shape: [N] f32, a scale a row; or with x_group [N, ceil(H / x_group)] u8: e8m0
  TensorView index;    ///< optional. Shape: [R] i32
  std::int32_t index_divisor = 1;
  std::int64_t x_group = 0;  ///< columns of x that share a scale; 0: all of a row
  TensorView row_ends;       ///< Shape: [local experts] i32, cumulative end offsets
  /// For experts that multiply by the router's weights, if the caller brought weights: weight of each row. Shape: [R,
  /// 1] f32
  TensorView weights;
  /// For experts that sum: the rows of each of the M received tokens. Negative where an expert of the token is not on
  /// this rank. Shape: [M, S] i32. The experts return sums of shape [M, H]; the sum of a token without rows is 0
  TensorView slot_rows;
  std::int64_t rows = 0;  ///< R: the most rows there can be
  std::int64_t rows_per_expert = 0;
};

}  // namespace moecl
