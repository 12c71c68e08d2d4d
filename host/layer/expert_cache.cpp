#include "host/layer/expert_cache.hpp"

#include <moecl/workspace.hpp>

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
  counters_ = layout.add(DType::i64, {3});
  priorities_ = layout.add(DType::i32, {experts});
  slots_ = layout.add(DType::i32, {experts});
  holders_ = layout.add(DType::i32, {slots});
  fetches_ = layout.add(DType::i32, {1 + 2 * slots});
  memory_ = Buffer(*stream.context, layout.total_bytes());
  for (TensorView* view : {&counters_, &priorities_, &slots_, &holders_, &fetches_})
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

void ExpertCache::bring(StreamView stream, TensorView row_ends, std::int64_t first, std::int64_t count,
                        std::int64_t most_used, bool new_pass) const {
  expert_slots::Claim claim{row_ends, slots_, holders_, priorities_, fetches_, counters_};
  claim.first_expert = static_cast<std::int32_t>(first), claim.experts = static_cast<std::int32_t>(count);
  claim.policy = policy_, claim.new_pass = new_pass;
  expert_slots::enqueue(stream, claim);
  if (in_place_) return;
  for (const Piece& piece : pieces_)
    expert_slots::enqueue(stream, expert_slots::Fetch{piece.host, piece.device, fetches_, most_used});
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
  std::array<std::int64_t, 3> counters{};
  read_blocking(stream, counters_.buffer, counters.data(), sizeof(counters));
  counts.hits = counters[0], counts.misses = counters[1];
  counts.fetched_bytes = static_cast<std::uint64_t>(counts.misses) * expert_bytes();
  return counts;
}

}  // namespace moecl
