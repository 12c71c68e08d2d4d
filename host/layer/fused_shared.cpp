#include <moecl/fused_shared.hpp>

#include "host/layer/weight_shard.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

MoeShape fused_shape(const MoeShape& shape, std::int32_t count) {
  require(count >= 1 && shape.shared_intermediate > 0, "fused shared experts: {} of a shared intermediate size of {}",
          count, shape.shared_intermediate);
  require(shape.shared_intermediate == count * shape.intermediate && shape.expert_width() == shape.hidden,
          "fused shared experts: {} of [{}, {}] are not {} of [{}, {}]", count, shape.shared_intermediate, shape.hidden,
          count, shape.intermediate, shape.expert_width());
  require(!shape.shared_gate, "fused shared experts: theirs is multiplied by a gate, that of routed ones is not");
  require(!shape.router.weight_on_input,
          "fused shared experts: the router's weights multiply the input of all experts");
  require(shape.special_experts() == 0, "fused shared experts: experts without products have the ids after the routed");
  require(shape.shared_bias == shape.expert_bias && (!shape.shared_bias || count == 1),
          "fused shared experts: biases of {} alone", shape.shared_bias ? "the shared experts" : "the routed experts");
  MoeShape fused = shape;
  fused.experts += count;
  fused.router.top_k += count;
  fused.router.fused_shared_experts = count;
  fused.shared_intermediate = 0;
  fused.shared_bias = false;
  return fused;
}

}  // namespace

FusedShared fuse_shared_experts(const MoeShape& shape, const MoeWeights& weights, std::int32_t count) {
  FusedShared fused{fused_shape(shape, count), weights};
  fused.weights.shared = {};
  for (std::int32_t i = 0; i < count; ++i)
    fused.weights.experts.push_back(fused_shared_expert(fused.shape, weights.shared, i));
  return fused;
}

MoeLayerConfig fuse_shared_experts(MoeLayerConfig config, std::int32_t count) {
  config.shape = fused_shape(config.shape, count);
  return config;
}

ExpertMatrices fused_shared_expert(const MoeShape& fused, const ExpertMatrices& shared, std::int64_t index) {
  const std::int32_t count = fused.router.fused_shared_experts;
  require(index >= 0 && index < count, "fused shared experts: {} of {}", index, count);
  return intermediate_part(shared, count * fused.intermediate, {index * fused.intermediate, fused.intermediate});
}

}  // namespace moecl
