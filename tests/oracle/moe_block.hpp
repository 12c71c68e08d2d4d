#pragma once
#include <moecl/moe_weights.hpp>

#include <vector>

namespace moecl::test::oracle {

struct MoeBlock {
  const MoeShape& shape;
  const MoeWeights& weights;
  OperandQuant activations, shared_activations;  ///< for products of routed experts, and of shared ones
};

struct MoeBlockRows {
  std::vector<double> out;  ///< [T, H]
  /// For each token: no number between the two products is so near to a rounding tie of its format that the rounding of
  /// f32 sums decides its code.
  std::vector<bool> decided;
};

/// The routed and shared experts of a layer in double precision, from its decoded weights. Rows are quantized in the
/// f32 arithmetic that their format specifies.
///
/// @param x    [T, H]
/// @param ids  [T, K], the router's choice with its weights
MoeBlockRows moe_block(const MoeBlock& block, const std::vector<float>& x, const std::vector<double>& ids,
                       const std::vector<double>& weights);

}  // namespace moecl::test::oracle
