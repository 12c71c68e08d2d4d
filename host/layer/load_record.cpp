#include <moecl/context.hpp>
#include <moecl/load_record.hpp>

#include "runtime/check.hpp"

namespace moecl {

namespace {
constexpr std::int64_t phases = 2;
}

std::vector<std::int64_t> PlaceLoads::of(std::int64_t layer, std::optional<Phase> phase) const {
  require(layer >= 0 && layer < layers, "loads: layer {} of {}", layer, layers);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(places));
  for (const Phase each : {Phase::prefill, Phase::decode}) {
    if (phase && *phase != each) continue;
    auto from = rows.begin() + (layer * phases + static_cast<std::int64_t>(each)) * places;
    for (std::int64_t& sum : sums) sum += *from++;
  }
  return sums;
}

struct LoadRecord::State {
  std::int64_t layers, places;
  Buffer counts;
  std::vector<std::int64_t> told;
  std::optional<Event> copied;

  State(StreamView stream, std::int64_t of_layers, std::int64_t of_places)
      : layers(of_layers),
        places(of_places),
        counts(*stream.context, static_cast<std::uint64_t>(layers * phases * places) * sizeof(std::int64_t)),
        told(static_cast<std::size_t>(layers * phases * places)) {
    clear(stream);
  }
  ~State() {
    try {
      if (copied) copied->wait();
    } catch (const std::exception&) {  // a failed copy writes nothing any more
    }
  }
  void clear(StreamView stream) const {
    if (counts.size_bytes() != 0) enqueue_fill(stream, counts.view(), 0);
  }
};

LoadRecord::LoadRecord(StreamView stream, std::int64_t layers, std::int64_t places) {
  require(layers >= 1 && places >= 0, "load record: {} layers of {} places", layers, places);
  state_ = std::make_unique<State>(stream, layers, places);
}
LoadRecord::~LoadRecord() = default;
LoadRecord::LoadRecord(LoadRecord&&) noexcept = default;
LoadRecord& LoadRecord::operator=(LoadRecord&&) noexcept = default;

TensorView LoadRecord::counts(std::int64_t layer, Phase phase) const {
  require(layer >= 0 && layer < state_->layers, "load record: layer {} of {}", layer, state_->layers);
  const std::int64_t at = (layer * phases + static_cast<std::int64_t>(phase)) * state_->places;
  const auto bytes = [](std::int64_t counts) { return static_cast<std::uint64_t>(counts) * sizeof(std::int64_t); };
  if (state_->places == 0) return {};
  return {state_->counts.view().slice(bytes(at), bytes(state_->places)), DType::i64, {state_->places}};
}

void LoadRecord::ask(StreamView stream, bool and_clear) {
  State& of = *state_;
  if (of.copied && !of.copied->is_complete()) return;
  of.copied.emplace();
  if (of.told.empty()) return;
  enqueue_read(stream, of.counts.view(), of.told.data(), of.counts.size_bytes(), {{}, &*of.copied});
  if (and_clear) of.clear(stream);
  stream.flush();
}

std::optional<PlaceLoads> LoadRecord::told() const {
  const State& of = *state_;
  if (!of.copied || !of.copied->is_complete()) return std::nullopt;
  return PlaceLoads{of.layers, of.places, of.told};
}

std::vector<std::int64_t> loads_of_experts(const PlacementPlan& plan, const std::vector<std::int64_t>& of_places,
                                           std::int64_t first_place) {
  const auto count = static_cast<std::int64_t>(of_places.size());
  require(first_place >= 0 && first_place + count <= plan.physical(), "loads: places [{}, {}) of {}", first_place,
          first_place + count, plan.physical());
  std::vector<std::int64_t> loads(plan.replicas.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t expert = plan.logical_of[static_cast<std::size_t>(first_place + i)];
    if (expert < 0) continue;  // a free place
    loads[static_cast<std::size_t>(expert)] += of_places[static_cast<std::size_t>(i)];
  }
  return loads;
}

}  // namespace moecl
