#include "host/layer/expert_places.hpp"

#include <moecl/context.hpp>
#include <moecl/physical_experts.hpp>

#include <numeric>

namespace moecl {

ExpertPlaces::ExpertPlaces(StreamView stream, const PlacementPlan& plan, std::int32_t experts, std::int32_t special)
    : ExpertPlaces(
          stream, plan.logical_of.empty() ? place_experts({experts}) : plan,
          replica_table(plan.logical_of.empty() ? place_experts({experts}) : plan, ReplicaChoice::token_hash, 0, 1),
          LostExperts::refused, special) {}

ExpertPlaces::ExpertPlaces(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost,
                           std::int32_t special)
    : experts_(plan.logical()), special_(special) {
  if (plan.is_identity() && special == 0) return;
  update(stream, plan, table, lost);
  written_.back().done.wait();
}

void ExpertPlaces::update(StreamView stream, const PlacementPlan& plan, const ReplicaTable& table, LostExperts lost) {
  written_.remove_if([](const Written& written) { return written.done.is_complete(); });
  const std::int64_t all = experts_ + special_;
  const auto counts = static_cast<std::size_t>(all), places = counts * static_cast<std::size_t>(table.choices);
  Written& written = written_.emplace_back();
  written.values.assign(places + counts, -1);
  std::copy(table.places.begin(), table.places.end(), written.values.begin());
  const auto of_counts = written.values.begin() + static_cast<std::ptrdiff_t>(places);
  std::fill(std::copy(table.counts.begin(), table.counts.end(), of_counts), written.values.end(), 0);
  // New memory, since earlier passes may still read the old tables.
  memory_ = Buffer(*stream.context, written.values.size() * sizeof(std::int32_t));
  const BufferView memory = memory_.view();
  places_ = TensorView(memory.slice(0, places * 4), DType::i32, {all, table.choices});
  replicas_ = TensorView(memory.slice(places * 4, counts * 4), DType::i32, {all});
  enqueue_write(stream, memory, written.values.data(), memory.size_bytes, {{}, &written.done});
  lost_ = lost, lacks_ = !plan.gone().empty();
}

void ExpertPlaces::find(StreamView stream, TensorView ids, TensorView weights, std::int64_t first_token,
                        TensorView physical, TensorView placed, TensorView fault) const {
  physical_experts::Args args{ids, places_, replicas_, first_token, physical, fault};
  args.expected = experts_;
  args.refuses = lost_ == LostExperts::refused;
  if (masks()) args.weights = weights, args.placed_weights = placed;
  physical_experts::enqueue(stream, args);
}

}  // namespace moecl
