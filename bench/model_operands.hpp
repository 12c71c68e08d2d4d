#pragma once
// The device memory of the benchmarks by model: layers of weights, and one call's operands.
#include <moecl/grouped_gemm.hpp>
#include <moecl/moe_layer.hpp>

#include <string>
#include <vector>

#include "bench/product_case.hpp"
#include "host/layer/expert_weights.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {

/// A product of the experts. Layers take turns, so that the weights of a call are in no cache at the next call.
class ExpertProduct {
 public:
  /// `layers`: weights of one or more layers of the same case. They must outlive every product that uses them.
  using Layers = std::vector<std::vector<ExpertSegment>>;
  ExpertProduct(const ModelCase& model, Which which, DType out, const Routing& routing, const Layers& layers);

  /// Runs the next layer. Async: one kernel per segment of experts.
  void enqueue();
  OperatorCost cost() const { return cost_; }
  /// The kernel variant, as the operator names it.
  std::string variant() const;
  /// Shape: [T * K, N], rows by expert
  const test::DeviceTensor& out() const { return out_; }

 private:
  ProductShape shape_;
  grouped_gemm::Args args_;
  OperatorCost cost_;
  const Layers& layers_;
  DeviceWeights ExpertSegment::*const weights_;
  std::size_t turn_ = 0;
  test::DeviceTensor a_, slots_, row_ends_, out_;
  std::vector<test::DeviceTensor> scale_;
};

/// Loads the experts' weights of `count` layers from the host.
ExpertProduct::Layers load_layers(const ModelCase& model, const ModelWeights& weights, int count);

/// Forward passes of the whole layers of a case, in turn.
class LayerForward {
 public:
  LayerForward(const ModelCase& model, const RoutingSource& source, std::int64_t tokens,
               const std::vector<MoeLayer>& layers);

  /// Runs the next layer. Async: the layer's kernels.
  void enqueue(StreamView stream);
  OperatorCost cost() const { return cost_; }

 private:
  MoeLayer::Forward forward_;
  OperatorCost cost_;
  const std::vector<MoeLayer>& layers_;
  std::size_t turn_ = 0;
  Buffer workspace_;
  test::DeviceTensor x_, out_, ids_, weights_;
};

}  // namespace moecl::bench
