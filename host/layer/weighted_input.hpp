#pragma once
// Where the router's weights go: into the sum of the experts' rows, or before that onto the experts' input.
#include <moecl/router_spec.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

#include "host/layer/planned.hpp"

namespace moecl {

/// What a strategy dispatches. With RouterSpec::weight_on_input x is multiplied by the weight and nothing is left for
/// the sum; else both are what came in.
struct WeightedInput {
  struct Layout {
    Layout(WorkspaceLayout& workspace, const RouterSpec& router, DType dtype, std::int64_t tokens, std::int64_t hidden);
    TensorView index, weights, x;  ///< absent where nothing is multiplied
  };

  struct Plans {
    Planned<LaunchPlan> weights, product;
  };

  WeightedInput() = default;
  /// Where x and weights will be.
  /// @param x  Shape: [T, H]. @param weights  Shape: [T, K] f32
  WeightedInput(const RouterSpec& router, const Layout& layout, BufferView workspace, TensorView x, TensorView weights);
  /// Multiplies, once the weights are known. The weight is rounded to the type of x first, the product after.
  ///
  /// Async:  no kernel, or up to three. Source: the modular path of vLLM; its older path does not round the weight
  void enqueue(StreamView stream, Plans& plans) const;

  TensorView x;        ///< Shape: [T, H] of the same type
  TensorView weights;  ///< Shape: [T, K] f32; absent: 1

 private:
  TensorView input_, router_weights_, column_, rounded_;  ///< absent where nothing is multiplied
};

}  // namespace moecl
