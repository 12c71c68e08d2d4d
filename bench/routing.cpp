#include "bench/routing.hpp"

#include <moecl/safetensors.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "runtime/check.hpp"

namespace moecl::bench {
namespace {

/// A number in (0, 1); a seed gives the same numbers everywhere.
double uniform(std::mt19937_64& engine) { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; }

/// Draws K distinct experts per token by weight: those with the least exponential waiting times.
std::vector<std::int32_t> draw(std::int64_t tokens, std::int64_t top_k, const std::vector<double>& weight,
                               std::mt19937_64& engine) {
  std::vector<std::int32_t> ids;
  std::vector<std::pair<double, std::int32_t>> waiting(weight.size());
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::size_t e = 0; e < weight.size(); ++e)
      waiting[e] = {-std::log(uniform(engine)) / weight[e], static_cast<std::int32_t>(e)};
    std::partial_sort(waiting.begin(), waiting.begin() + top_k, waiting.end());
    for (std::int64_t k = 0; k < top_k; ++k) ids.push_back(waiting[static_cast<std::size_t>(k)].second);
  }
  return ids;
}

}  // namespace

RoutingSource RoutingSource::named(const std::string& name, std::uint64_t seed) {
  RoutingSource source{name, seed, {}, 0};
  if (name == "uniform" || name == "zipf") return source;
  const SafetensorsFile file = SafetensorsFile::open(name);
  std::string what = "topk_ids";
  for (const std::string& tensor : file.names())  // of a record: take its first layer
    if (!file.has(what) && tensor.starts_with("layer.") && tensor.ends_with(".topk_ids")) what = tensor;
  const HostTensor ids = file.tensor(what);
  if (ids.dtype != DType::i32 || ids.shape.size() != 2 || ids.elements() == 0)
    fail(ErrorCode::invalid_data, "{}: expected topk_ids: i32 [T, K] of at least one token, got {}", name,
         ids.describe());
  source.recorded.resize(static_cast<std::size_t>(ids.elements()));
  ids.data.read(source.recorded.data(), ids.size_bytes);
  source.recorded_top_k = ids.shape[1];
  return source;
}

Routing RoutingSource::route(std::int64_t tokens, std::int64_t top_k, std::int32_t experts) const {
  Routing routing;
  routing.tokens = tokens, routing.top_k = top_k;
  const auto slots = static_cast<std::size_t>(tokens * top_k);
  if (replays()) {
    if (recorded_top_k != top_k)
      fail(ErrorCode::invalid_data, "{}: {} experts a token, the shape has {}", name, recorded_top_k, top_k);
    for (std::size_t slot = 0; slot < slots; ++slot) routing.ids.push_back(recorded[slot % recorded.size()]);
  } else {
    std::mt19937_64 engine(seed);
    std::vector<double> weight(static_cast<std::size_t>(experts), 1);
    if (name == "zipf")
      for (std::size_t rank = 0; rank < weight.size(); ++rank) weight[rank] = 1 / static_cast<double>(rank + 1);
    for (std::size_t i = weight.size(); i > 1; --i) std::swap(weight[i - 1], weight[engine() % i]);
    routing.ids = draw(tokens, top_k, weight, engine);
  }
  for (const std::int32_t id : routing.ids)
    if (id < 0 || id >= experts)
      fail(ErrorCode::invalid_data, "{}: expert {} of a token, the shape has {}", name, id, experts);
  routing.sorted_slots.resize(slots);
  std::iota(routing.sorted_slots.begin(), routing.sorted_slots.end(), 0);
  const auto expert_of = [&](std::int32_t slot) { return routing.ids[static_cast<std::size_t>(slot)]; };
  std::stable_sort(routing.sorted_slots.begin(), routing.sorted_slots.end(),
                   [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
  routing.row_ends.assign(static_cast<std::size_t>(experts), 0);
  for (const std::int32_t id : routing.ids) ++routing.row_ends[static_cast<std::size_t>(id)];
  routing.active_experts = experts - std::count(routing.row_ends.begin(), routing.row_ends.end(), 0);
  std::partial_sum(routing.row_ends.begin(), routing.row_ends.end(), routing.row_ends.begin());
  return routing;
}

}  // namespace moecl::bench
