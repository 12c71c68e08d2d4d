#include "host/npu/distribute.hpp"

#include <moecl/expert_sort.hpp>

#include "dispatch/agreement.hpp"

namespace moecl::npu {

std::int64_t Distribution::expand_rows() const {
  if (rank >= shared_ranks) return ranks * capacity();
  const std::int64_t each = shared_ranks / shared_experts;  // ranks of one shared expert
  return most_tokens * ((ranks + each - 1) / each);
}

void Distribution::check() const {
  require(ranks >= 1 && rank < ranks, "ep_rank_id: {} is not in [0, ep_world_size {})", rank, ranks);
  require(shared_ranks < ranks, "shared_expert_rank_num: {} of {} ranks leave none for the experts", shared_ranks,
          ranks);
  require(shared_ranks == 0 || (shared_experts >= 1 && shared_ranks % shared_experts == 0),
          "shared_expert_num: {} shared experts do not have equal shares of {} ranks", shared_experts, shared_ranks);
  require(experts >= 1 && experts % (ranks - shared_ranks) == 0,
          "moe_expert_num: {} experts do not have equal shares of {} ranks", experts, ranks - shared_ranks);
  require(global_bs % ranks == 0, "global_bs: {} is no multiple of {} ranks", global_bs, ranks);
  if (!hierarchy) return;
  require(ranks_per_server >= 1 && ranks % ranks_per_server == 0, "ranks_per_server: {} does not divide {} ranks",
          ranks_per_server, ranks);
  if (shared_ranks != 0 || zero_experts + copy_experts + const_experts != 0)
    fail(ErrorCode::unsupported, "comm_alg: hierarchy goes with neither shared nor special experts");
}

std::vector<Agreed> Distribution::agreed() const {
  return {{"K", top_k},
          {"H", hidden},
          {"dtype", dtype},
          {"moe_expert_num", experts},
          {"shared_expert_num", shared_experts},
          {"shared_expert_rank_num", shared_ranks},
          {"zero_expert_num", zero_experts},
          {"copy_expert_num", copy_experts},
          {"const_expert_num", const_experts},
          {"comm_alg hierarchy", hierarchy},
          {"ranks_per_server", ranks_per_server},
          {"global_bs", global_bs},
          {global_bs == 0 ? "BS (with global_bs 0)" : "global_bs / ranks", most_tokens}};
}

namespace {

/// What a rank says first about its arguments.
constexpr std::int64_t refuses = 0, accepts = 1;

}  // namespace

void agree(Communicator& ranks, const char* name, const std::vector<Agreed>& mine) {
  const auto all = ranks.together([&] {
    std::vector<std::int64_t> values = {accepts};
    for (const Agreed& thing : mine) values.push_back(thing.value);
    return ranks.share(name, values);
  });
  std::vector<std::int32_t> numbers;
  for (std::size_t r = 0; r < all.size(); ++r) {
    require(all[r][0] == accepts, "rank {} refuses its arguments", r);
    numbers.push_back(static_cast<std::int32_t>(r));
  }
  expect_agreement("arguments", mine, numbers, [&](std::size_t r, std::size_t i) { return all[r][i + 1]; });
}

void check_together(Communicator& ranks, const char* name, const std::function<void()>& check) {
  std::exception_ptr refusal;
  ranks.together([&] {
    try {
      check();
    } catch (const Error&) {
      refusal = std::current_exception();
    }
  });
  if (refusal == nullptr) return;
  try {
    ranks.share(name, {refuses});
  } catch (...) {  // the refusal is what this rank has to say
  }
  std::rethrow_exception(refusal);
}

SortedIds sort_ids(Steps& steps, const TensorView& ids, std::int32_t experts) {
  const std::int64_t slots = ids.elements();
  SortedIds sorted{steps.scratch(DType::i32, {experts}), steps.scratch(DType::i32, {slots}),
                   steps.scratch(DType::i32, {slots})};
  expert_sort::Args sort;
  sort.ids = ids;
  sort.end_expert = sort.total_experts = experts;
  sort.row_ends = sorted.row_ends;
  sort.sorted_slots = sorted.sorted_slots;
  sort.slot_rows = sorted.slot_rows;
  sort.scratch = steps.scratch_bytes(expert_sort::scratch_bytes(slots, experts, steps.caps()));
  steps.run(sort);
  return sorted;
}

TensorView exchange_slabs(Steps& steps, Communicator* ranks, const TensorView& send) {
  TensorView received = send;
  received.buffer = steps.scratch_bytes(send.size_bytes());
  if (ranks == nullptr) return received;
  const std::uint64_t slab = send.size_bytes() / static_cast<std::uint64_t>(ranks->size());
  Communicator::Blocks blocks;
  for (std::int32_t r = 0; r < ranks->size(); ++r) {
    blocks.offsets.push_back(static_cast<std::uint64_t>(r) * slab);
    blocks.bytes.push_back(slab);
  }
  ranks->all_to_all_v(send.buffer, blocks, received.buffer, blocks);
  return received;
}

}  // namespace moecl::npu
