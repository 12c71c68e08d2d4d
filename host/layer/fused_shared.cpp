#include <moecl/fused_shared.hpp>

#include "host/layer/weight_shard.hpp"
#include "runtime/check.hpp"

namespace moecl {

FusedShared fuse_shared_experts(const MoeShape& shape, const MoeWeights& weights, std::int32_t count) {
  require(count >= 1 && shape.shared_intermediate > 0, "fused shared experts: {} of a shared intermediate size of {}",
          count, shape.shared_intermediate);
  require(shape.shared_intermediate == count * shape.intermediate && shape.expert_width() == shape.hidden,
          "fused shared experts: {} of [{}, {}] are not {} of [{}, {}]", count, shape.shared_intermediate, shape.hidden,
          count, shape.intermediate, shape.expert_width());
  require(!shape.shared_gate, "fused shared experts: theirs is multiplied by a gate, that of routed ones is not");
  require(shape.special_experts() == 0, "fused shared experts: experts without products have the ids after the routed");
  require(shape.shared_bias == shape.expert_bias && (!shape.shared_bias || count == 1),
          "fused shared experts: biases of {} alone", shape.shared_bias ? "the shared experts" : "the routed experts");
  FusedShared fused{shape, weights};
  fused.shape.experts += count;
  fused.shape.router.top_k += count;
  fused.shape.router.groups = fused.shape.router.kept_groups = 1;  // nothing is chosen here
  fused.shape.shared_intermediate = 0;
  fused.shape.selection_bias = fused.shape.router_bias = fused.shape.shared_bias = false;
  fused.weights.router = fused.weights.router_bias = fused.weights.selection_bias = {};
  fused.weights.shared = {};
  for (std::int32_t i = 0; i < count; ++i)
    fused.weights.experts.push_back(
        intermediate_part(weights.shared, shape.shared_intermediate, {i * shape.intermediate, shape.intermediate}));
  return fused;
}

}  // namespace moecl
