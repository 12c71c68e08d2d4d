#include "host/layer/expert_places.hpp"

#include <moecl/physical_experts.hpp>

#include <numeric>
#include <vector>

namespace moecl {

ExpertPlaces::ExpertPlaces(StreamView stream, const PlacementPlan& plan, std::int32_t experts, std::int32_t special) {
  const bool moved = !plan.logical_of.empty() && !plan.is_identity();
  if (!moved && special == 0) return;
  std::int64_t choices = 1;  // of places, the most that an expert has
  std::vector<std::int32_t> places(static_cast<std::size_t>(experts)), replicas(static_cast<std::size_t>(experts), 1);
  std::iota(places.begin(), places.end(), 0);
  if (moved) choices = plan.most_replicas, places = plan.physical_of, replicas = plan.replicas;
  replicas.resize(replicas.size() + static_cast<std::size_t>(special), 0);
  places.resize(replicas.size() * static_cast<std::size_t>(choices), -1);
  const std::uint64_t of_places = places.size() * sizeof(std::int32_t),
                      of_counts = replicas.size() * sizeof(std::int32_t);
  memory_ = Buffer(*stream.context, of_places + of_counts);
  places_ = TensorView(memory_.view().slice(0, of_places), DType::i32, {experts + special, choices});
  replicas_ = TensorView(memory_.view().slice(of_places, of_counts), DType::i32, {experts + special});
  write_blocking(stream, places_.buffer, places.data(), of_places);
  write_blocking(stream, replicas_.buffer, replicas.data(), of_counts);
}

void ExpertPlaces::find(StreamView stream, TensorView ids, std::int64_t first_token, TensorView physical,
                        TensorView fault) const {
  physical_experts::enqueue(stream, {ids, places_, replicas_, first_token, physical, fault});
}

}  // namespace moecl
