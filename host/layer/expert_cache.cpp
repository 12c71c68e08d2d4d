#include "host/layer/expert_cache.hpp"

#include <moecl/workspace.hpp>

#include <algorithm>
#include <array>

#include "runtime/check.hpp"

namespace moecl {

ExpertCache::ExpertCache(StreamView stream, std::int64_t experts, const CacheOptions& options)
    : policy_(options.policy), in_place_(options.in_place) {
  const std::int64_t slots = options.slots;
  require(slots > 0 && slots < experts, "expert cache: {} slots of {} experts", slots, experts);
  require(options.priorities.empty() || static_cast<std::int64_t>(options.priorities.size()) == experts,
          "expert cache: {} priorities of {} experts", options.priorities.size(), experts);
  WorkspaceLayout layout;
  counters_ = layout.add(DType::i64, {5});
  priorities_ = layout.add(DType::i32, {experts});
  slots_ = layout.add(DType::i32, {experts});
  holders_ = layout.add(DType::i32, {slots});
  awaited_ = layout.add(DType::i32, {slots});
  fetches_ = layout.add(DType::i32, {1 + 2 * slots});
  memory_ = Buffer(*stream.context, layout.total_bytes());
  for (TensorView* view : {&counters_, &priorities_, &slots_, &holders_, &awaited_, &fetches_})
    *view = tensor_in(memory_.view(), *view);
  enqueue_fill(stream, memory_.view(), 0);
  forget(stream);
  if (!options.priorities.empty())
    write_blocking(stream, priorities_.buffer, options.priorities.data(), priorities_.size_bytes());
}

void ExpertCache::add(const Buffer& host, const Buffer& device) {
  if (host.size_bytes() == 0) return;
  const std::int64_t experts = slots_.shape[0];
  const std::int64_t each = static_cast<std::int64_t>(host.size_bytes()) / experts;
  pieces_.push_back({TensorView(host.view(), DType::u8, {experts, each}),
                     in_place_ ? TensorView() : TensorView(device.view(), DType::u8, {slot_count(), each})});
}

void ExpertCache::claim(StreamView stream, TensorView row_ends, const Part& part) const {
  expert_slots::Claim claim{row_ends, slots_, holders_, priorities_, fetches_, counters_, awaited_};
  claim.first_expert = static_cast<std::int32_t>(part.first), claim.experts = static_cast<std::int32_t>(part.count);
  claim.first_slot = static_cast<std::int32_t>(part.first_slot);
  claim.slot_count = static_cast<std::int32_t>(part.slots);
  claim.policy = policy_, claim.new_pass = part.first == 0, claim.foreseen = part.foreseen;
  expert_slots::enqueue(stream, claim);
}

void ExpertCache::fetch(StreamView stream, const ExpertCache& claimed, std::int64_t most_used) const {
  if (in_place_) return;
  const std::int64_t most = std::clamp<std::int64_t>(most_used, 1, slot_count());
  for (const Piece& piece : pieces_)
    expert_slots::enqueue(stream, expert_slots::Fetch{piece.host, piece.device, claimed.fetches_, most});
}

void ExpertCache::forget(StreamView stream) const {
  if (!present()) return;
  enqueue_fill(stream, slots_.buffer, 0xFFFFFFFF);
  enqueue_fill(stream, holders_.buffer, 0xFFFFFFFF);
}

std::uint64_t ExpertCache::expert_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += static_cast<std::uint64_t>(piece.host.shape[1]);
  return bytes;
}

ResidencyCounts ExpertCache::counts(StreamView stream) const {
  ResidencyCounts counts;
  if (!present()) return counts;
  std::array<std::int64_t, 5> counters{};
  read_blocking(stream, counters_.buffer, counters.data(), sizeof(counters));
  counts.hits = counters[0], counts.misses = counters[1];
  counts.prefetched = counters[3], counts.prefetched_hits = counters[4];
  counts.fetched_bytes = static_cast<std::uint64_t>(counts.misses + counts.prefetched) * expert_bytes();
  return counts;
}

}  // namespace moecl
