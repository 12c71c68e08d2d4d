#include "host/layer/expert_places.hpp"

#include <moecl/physical_experts.hpp>

namespace moecl {

ExpertPlaces::ExpertPlaces(StreamView stream, const PlacementPlan& plan) {
  if (plan.logical_of.empty() || plan.is_identity()) return;
  const std::uint64_t places = plan.physical_of.size() * sizeof(std::int32_t),
                      replicas = plan.replicas.size() * sizeof(std::int32_t);
  memory_ = Buffer(*stream.context, places + replicas);
  places_ = TensorView(memory_.view().slice(0, places), DType::i32, {plan.logical(), plan.most_replicas});
  replicas_ = TensorView(memory_.view().slice(places, replicas), DType::i32, {plan.logical()});
  write_blocking(stream, places_.buffer, plan.physical_of.data(), places);
  write_blocking(stream, replicas_.buffer, plan.replicas.data(), replicas);
}

void ExpertPlaces::find(StreamView stream, TensorView ids, std::int64_t first_token, TensorView physical,
                        TensorView fault) const {
  physical_experts::enqueue(stream, {ids, places_, replicas_, first_token, physical, fault});
}

}  // namespace moecl
