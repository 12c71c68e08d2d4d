#include "host/npu/distribute.hpp"

#include <moecl/expert_sort.hpp>

#include "dispatch/agreement.hpp"
#include "dispatch/exchange.hpp"
#include "runtime/quotient.hpp"

namespace moecl::npu {

std::int64_t Distribution::expand_rows() const {
  if (rank >= shared_ranks) return ranks * capacity();
  const std::int64_t each = shared_ranks / shared_experts;  // ranks of each shared expert
  return most_tokens * quotient_up(ranks, each);
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

/// The first value that a rank shares: whether it accepts its arguments.
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
  } catch (...) {  // this rank throws its refusal instead
  }
  std::rethrow_exception(refusal);
}

SortedIds sort_ids(Steps& steps, const TensorView& ids, std::int32_t experts, std::int32_t first) {
  const std::int64_t slots = ids.elements();
  SortedIds sorted{steps.scratch(DType::i32, {experts}), steps.scratch(DType::i32, {slots}),
                   steps.scratch(DType::i32, {slots})};
  expert_sort::Args sort;
  sort.ids = ids;
  sort.first_expert = first;
  sort.end_expert = sort.total_experts = first + experts;
  sort.row_ends = sorted.row_ends;
  sort.sorted_slots = sorted.sorted_slots;
  sort.slot_rows = sorted.slot_rows;
  sort.scratch = steps.scratch_bytes(expert_sort::scratch_bytes(slots, experts, steps.caps()));
  steps.run(sort);
  return sorted;
}

TensorView window_like(Steps& steps, const TensorView& send) {
  TensorView received = send;
  received.buffer = steps.scratch_bytes(send.size_bytes());
  return received;
}

namespace {

/// The number of rows that a slab brings. Errors: invalid_data  more than the slab has room for
std::int64_t rows_of(const SlabExchange& how, const Slab& slab, const std::vector<std::int32_t>& table) {
  const std::int64_t first = slab.list * how.table.shape[1];
  const auto end = [&](std::int64_t number) -> std::int64_t {
    return number == 0 ? 0 : table[static_cast<std::size_t>(first + number - 1)];
  };
  const std::int64_t rows = end(slab.end) - end(slab.begin);
  if (rows < 0 || rows > how.capacity)
    fail(ErrorCode::invalid_data, "rank {} counts {} rows for a slab of {}", slab.peer, rows, how.capacity);
  return std::min(rows + (how.one_more ? 1 : 0), how.capacity);
}

}  // namespace

void exchange_slabs(Communicator* ranks, const SlabExchange& how, const std::vector<Piece>& pieces) {
  if (ranks == nullptr) return;
  std::vector<HeldView> shown;
  std::vector<BufferView> into;
  std::vector<std::uint64_t> row_bytes;
  for (const Piece& piece : pieces) {
    shown.emplace_back(piece.send.buffer.slice(0, piece.send.size_bytes()));
    into.push_back(piece.recv.buffer);
    row_bytes.push_back(size_bytes(piece.send.dtype) *
                        static_cast<std::uint64_t>(piece.send.rank == 1 ? 1 : piece.send.shape[1]));
  }
  const auto pulls_of = [how, pieces, row_bytes](const std::vector<std::int32_t>& table) {
    std::vector<Communicator::Exchange::Pull> pulls;
    for (const Slab& slab : how.slabs) {
      const auto rows = static_cast<std::uint64_t>(rows_of(how, slab, table)),
                 capacity = static_cast<std::uint64_t>(how.capacity);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto place = [&](std::int32_t number) {
          return static_cast<std::uint64_t>(number) * capacity * row_bytes[i];
        };
        pulls.push_back(
            {slab.peer, place(slab.from), pieces[i].recv.buffer.slice(place(slab.to), rows * row_bytes[i]), i});
      }
    }
    return pulls;
  };
  Communicator::Exchange(*ranks).run_counted("counted all_to_all", std::move(shown),
                                             {{"rows of a slab", how.capacity}, {"bytes of rows", row_bytes}},
                                             {how.table.buffer.slice(0, how.table.size_bytes()), into, pulls_of});
}

std::vector<TensorView> gather_lists(Steps& steps, Communicator* ranks, std::int32_t size,
                                     const std::vector<TensorView>& lists) {
  std::vector<TensorView> all;
  std::vector<Communicator::Exchange::Piece> pieces;
  for (const TensorView& list : lists) {
    all.push_back(steps.scratch(DType::i32, {size, list.shape[0]}));
    pieces.push_back({list.buffer.slice(0, list.size_bytes()), all.back().buffer, list.size_bytes()});
  }
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size), 1);
  if (ranks != nullptr) Communicator::Exchange(*ranks).gather(pieces, one_each, Shown::until_read);
  return all;
}

Servers::Servers(const Distribution& d, Communicator* ranks)
    : each(d.ranks_per_server), count(d.ranks / each), mine(d.rank / each), index(d.rank % each) {
  if (ranks == nullptr) return;
  std::vector<std::int32_t> here, there;
  for (std::int32_t i = 0; i < each; ++i) here.push_back(mine * each + i);
  for (std::int32_t s = 0; s < count; ++s) there.push_back(s * each + index);
  near = ranks->part(here);
  alike = ranks->part(there);
}

}  // namespace moecl::npu
