#include "host/npu/distribute.hpp"

#include <moecl/expert_sort.hpp>

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
          {"dtype", static_cast<std::int64_t>(dtype)},
          {"moe_expert_num", experts},
          {"shared_expert_num", shared_experts},
          {"shared_expert_rank_num", shared_ranks},
          {"zero_expert_num", zero_experts},
          {"copy_expert_num", copy_experts},
          {"const_expert_num", const_experts},
          {"comm_alg hierarchy", hierarchy ? 1 : 0},
          {"ranks_per_server", ranks_per_server},
          {"global_bs", global_bs},
          {global_bs == 0 ? "BS (with global_bs 0)" : "global_bs / ranks", most_tokens}};
}

namespace {

/// What a rank says first about its arguments.
constexpr std::int64_t refuses = 0, accepts = 1;

}  // namespace

void agree(Communicator& ranks, const char* name, const Distribution& mine, const std::vector<Agreed>& more) {
  std::vector<Agreed> numbers = mine.agreed();
  numbers.insert(numbers.end(), more.begin(), more.end());
  std::vector<std::int64_t> values = {accepts};
  for (const Agreed& number : numbers) values.push_back(number.second);
  const auto all = ranks.share(name, values);
  for (std::size_t r = 0; r < all.size(); ++r) require(all[r][0] == accepts, "rank {} refuses its arguments", r);
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::size_t i = 0; i < numbers.size(); ++i)
      require(all[r].size() == values.size() && all[r][i + 1] == all[0][i + 1], "{}: rank {} has {}, rank 0 has {}",
              numbers[i].first, r, all[r][i + 1], all[0][i + 1]);
}

void refuse(Communicator& ranks, const char* name) {
  try {
    ranks.share(name, {refuses});
  } catch (const Error&) {  // the refusal is what this rank has to say
  }
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
