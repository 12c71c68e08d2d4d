#pragma once
#include <moecl/tensor_view.hpp>

#include <cstdint>

namespace moecl {

/// What experts give back of the rows they get: who multiplies by the router's weights, and who sums.
/// Source: TopKWeightAndReduce of vLLM
enum class ExpertOutput : std::uint8_t {
  rows,           ///< as the products gave them: combine multiplies, and sums
  weighted_rows,  ///< multiplied by RoutedRows::weights: combine sums
  sums            ///< of each token that came one row, the sum of its weighted rows: combine only brings them home
};
/// "rows", "weighted_rows", "sums"
const char* name(ExpertOutput output) noexcept;

/// The rows a strategy's dispatch hands to the local experts: where they are and which expert each belongs to.
///
/// Standard layout: rows of all local experts concatenated in expert order. Batched layout (rows_per_expert > 0):
/// expert e's rows start at e * rows_per_expert. Rows may be read in place: row j is x[index[j] / index_divisor].
struct RoutedRows {
  TensorView x;        ///< Shape: [N, H]
  TensorView x_scale;  ///< of codes. Shape: [N] f32, each row's scale; or with x_group [N, ceil(H / x_group)] u8: e8m0
  TensorView index;    ///< optional. Shape: [R] i32
  std::int32_t index_divisor = 1;
  std::int64_t x_group = 0;  ///< columns of x that share a scale; 0: all of a row
  TensorView row_ends;       ///< Shape: [local experts] i32, cumulative end offsets
  /// Of experts who multiply by them, where weights were brought. Shape: [R, 1] f32: the router's weight of each row
  TensorView weights;
  /// Of experts who sum: which rows are a token's. Shape: [M, S] i32, of the M tokens that came, negative where an
  /// expert of the token is not here. The sums are [M, H], of a token without any row 0
  TensorView slot_rows;
  std::int64_t rows = 0;  ///< R: the most rows there can be
  std::int64_t rows_per_expert = 0;
};

}  // namespace moecl
