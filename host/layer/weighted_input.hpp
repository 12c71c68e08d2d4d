#pragma once
// Applies the router's weights to the experts' input, if the router asks for it instead of weighting the sum of rows.
#include <moecl/router_spec.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

#include "host/layer/planned.hpp"

namespace moecl {

/// The x and the weights that a strategy dispatches. With RouterSpec::weight_on_input, x is multiplied by the weight
/// and `weights` is absent, so the sum is unweighted. Otherwise both are unchanged.
struct WeightedInput {
  struct Layout {
    Layout(WorkspaceLayout& workspace, const RouterSpec& router, DType dtype, std::int64_t tokens, std::int64_t hidden);
    TensorView index, weights, x;  ///< absent unless weight_on_input
  };

  struct Plans {
    Planned<LaunchPlan> weights, product;
  };

  WeightedInput() = default;
  /// Sets x and weights to the memory where they will be.
  /// @param x  Shape: [T, H]. @param weights  Shape: [T, K] f32
  WeightedInput(const RouterSpec& router, const Layout& layout, BufferView workspace, TensorView x, TensorView weights);
  /// Multiplies; the weights must be known by then. First the weight is rounded to the type of x, then the product.
  ///
  /// Async:  no kernel, or up to three. Source: the modular path of vLLM; its older path does not round the weight
  void enqueue(StreamView stream, Plans& plans) const;

  TensorView x;        ///< Shape: [T, H], of the same dtype as the input
  TensorView weights;  ///< Shape: [T, K] f32; absent: 1

 private:
  TensorView input_, router_weights_, column_, rounded_;  ///< absent unless weight_on_input
};

}  // namespace moecl
