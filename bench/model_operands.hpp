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

/// Layers take turns, so that what a call reads is not in a cache at the next.
class ExpertProduct {
 public:
  /// `layers`: their weights, of the same case; at least one. Kept until the last product of them is gone.
  using Layers = std::vector<std::vector<ExpertSegment>>;
  ExpertProduct(const ModelCase& model, Which which, DType out, const Routing& routing, const Layers& layers);

  /// Of the next layer. Async: a kernel a segment of experts.
  void enqueue();
  OperatorCost cost() const { return cost_; }
  /// The kernel variant, by the operator's own word.
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

/// Weights of the experts of `count` layers, from the host's.
ExpertProduct::Layers load_layers(const ModelCase& model, const ModelWeights& weights, int count);

/// Whole layers of a case, in turn.
class LayerForward {
 public:
  LayerForward(const ModelCase& model, const RoutingSource& source, std::int64_t tokens,
               const std::vector<MoeLayer>& layers);

  /// Of the next layer. Async: the layer's kernels.
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
