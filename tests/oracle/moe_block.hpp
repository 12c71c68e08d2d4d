#pragma once
#include <moecl/moe_weights.hpp>

#include <vector>

namespace moecl::test::oracle {

struct MoeBlock {
  const MoeShape& shape;
  const MoeWeights& weights;
  OperandQuant activations, shared_activations;  ///< of the experts' products, and of the shared ones'
};

struct MoeBlockRows {
  std::vector<double> out;  ///< [T, H]
  /// Of each token: no number between two products stands so near to a tie of its format that the rounding of f32 sums
  /// decides its code.
  std::vector<bool> decided;
};

/// The experts and shared experts of a layer in double precision, from what its weights mean; rows are quantized in the
/// f32 arithmetic that their format names.
///
/// @param x    [T, H]
/// @param ids  [T, K], the router's choice with its weights
MoeBlockRows moe_block(const MoeBlock& block, const std::vector<float>& x, const std::vector<double>& ids,
                       const std::vector<double>& weights);

}  // namespace moecl::test::oracle
