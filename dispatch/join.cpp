// Groups of ranks that are processes: how they begin, shrink and grow again.
#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <numeric>

#include "dispatch/exchange.hpp"
#include "dispatch/processes/group_memory.hpp"
#include "dispatch/rank_group.hpp"
#include "dispatch/transports/mpi.hpp"
#include "dispatch/transports/shared_memory.hpp"
#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {

RankGroup::State::~State() {
  watch.reset();
  courier.reset();
}

std::shared_ptr<RankGroup::State> RankGroup::State::linked(std::unique_ptr<Link> link, StreamView stream,
                                                           const GroupOptions& options, const State* of) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->options.peer_memory = driver_peer_memory({stream});
  state->fate.deadline = options.deadline;
  state->transports = make_transports(state->options.peer_memory);
  state->link = std::move(link);
  Link& through = *state->link;
  state->fate.settle = [&through](std::string_view cause) { return through.end(cause); };
  const std::int32_t mine = through.rank(), size = through.size();
  for (std::int32_t rank = 0; rank < size; ++rank) {
    state->ranks.push_back(std::make_unique<Rank>());
    state->ranks.back()->bytes_received = std::vector<std::atomic<std::uint64_t>>(static_cast<std::size_t>(size));
  }
  state->rank(mine).main.stream = stream;
  for (std::int32_t to = 0; to < size; ++to)
    for (std::int32_t from = 0; from < size; ++from)
      if (from == to)
        state->choices.push_back({TransportKind::shared_context, "the rank itself"});
      else
        state->choices.push_back({through.kind(), of != nullptr ? "as before" : "not probed yet"});
  state->courier = std::make_unique<Courier>(stream, through, state->fate);
  state->watch = std::make_unique<Watch>(through, state->fate);
  return state;
}

std::unique_ptr<Link> RankGroup::State::let_go() {
  watch.reset();
  fate.settle = nullptr;  // others may not have come as far
  fate.end("the ranks form a new group");
  courier.reset();
  return std::move(link);
}

namespace {

/// What a group of processes has to have alike.
std::vector<Agreed> agreed_about(const GroupOptions& options) {
  return {{"version", std::string(MOECL_VERSION)}, {"deadline in ms", options.deadline.count()}};
}

/// Every rank sends each other one a pattern. @return  GB/s of what each of them gave
std::vector<double> probe_all(Communicator& ranks) {
  constexpr std::uint64_t bytes = 256 << 10;
  const auto size = static_cast<std::size_t>(ranks.size()), mine = static_cast<std::size_t>(ranks.rank());
  std::vector<double> rates(size);
  const StreamView stream = ranks.stream();
  const auto pattern_of = [&](std::size_t from, std::size_t to) {
    std::vector<std::uint32_t> pattern(bytes / 4);
    std::iota(pattern.begin(), pattern.end(), static_cast<std::uint32_t>(from * 65537 + to * 257));
    return pattern;
  };
  const Buffer send(*stream.context, bytes * size), recv(*stream.context, bytes * size);
  std::vector<std::uint64_t> offsets, sizes;
  for (std::size_t r = 0; r < size; ++r) {
    const std::vector<std::uint32_t> pattern = pattern_of(mine, r);
    write_blocking(stream, send.view().slice(r * bytes, bytes), pattern.data(), bytes);
    offsets.push_back(r * bytes);
    sizes.push_back(bytes);
  }
  enqueue_fill(stream, recv.view(), 0);
  ranks.wait(stream.record());
  ranks.share("probe", {});
  const auto begin = std::chrono::steady_clock::now();
  ranks.all_to_all_v(send.view(), {offsets, sizes}, recv.view(), {offsets, sizes});
  ranks.wait(stream.record());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::vector<std::uint32_t> arrived(bytes / 4);
  for (std::size_t r = 0; r < size; ++r) {
    read_blocking(stream, recv.view().slice(r * bytes, bytes), arrived.data(), bytes);
    if (arrived != pattern_of(r, mine))
      fail(ErrorCode::device_error, "join: other bytes than rank {} sent arrived at rank {}", r, mine);
    rates[r] = static_cast<double>(bytes) * static_cast<double>(size - 1) / 1e9 / std::max(seconds.count(), 1e-9);
  }
  return rates;
}

}  // namespace

RankGroup RankGroup::join(const std::string& name, std::int32_t rank, std::int32_t size, StreamView stream,
                          const GroupOptions& options) {
  expect_driver_process();
  require(stream.queue != nullptr, "join: rank {} has no stream", rank);
  expect_possible(options);
  require(!options.transport || *options.transport == TransportKind::shared_memory,
          "join: transport {}: processes of a node have shared_memory",
          moecl::name(options.transport.value_or(TransportKind::shared_memory)));
  std::unique_ptr<Link> link = link_by_shared_memory(name, rank, size, options.deadline);
  return begun(State::linked(std::move(link), stream, options, nullptr));
}

RankGroup RankGroup::from_mpi(const void* mpi_comm, StreamView stream, const GroupOptions& options) {
  expect_driver_process();
  require(stream.queue != nullptr, "mpi: this rank has no stream");
  expect_possible(options);
  require(!options.transport || *options.transport == TransportKind::mpi,
          "mpi: transport {}: processes of MPI have mpi", moecl::name(options.transport.value_or(TransportKind::mpi)));
  return begun(State::linked(link_by_mpi(mpi_comm, options.deadline), stream, options, nullptr));
}

void RankGroup::remove(const std::string& name) noexcept { GroupMemory::remove(name); }

RankGroup RankGroup::begun(std::shared_ptr<State> state) {
  RankGroup group(Made::processes, std::move(state));
  Communicator ranks = group.communicator(group.state_->link->rank());
  ranks.share("join", {}, agreed_about(group.state_->options));
  if (group.size() == 1) return group;
  const std::vector<double> rates = ranks.together([&] { return probe_all(ranks); });
  State& of = *group.state_;
  const auto ranks_count = static_cast<std::size_t>(group.size());
  for (std::int32_t peer = 0; peer < group.size(); ++peer) {
    if (peer == ranks.rank()) continue;
    const auto rate = rates[static_cast<std::size_t>(peer)];
    for (const auto& [to, from] : {std::pair(ranks.rank(), peer), std::pair(peer, ranks.rank())})
      of.choices[static_cast<std::size_t>(to) * ranks_count + static_cast<std::size_t>(from)].reason =
          fmt::format("another process, {:.1f} GB/s in the probe of all at once", rate);
  }
  of.rank(ranks.rank()).meetings = 0;
  for (auto& bytes : of.rank(ranks.rank()).bytes_received) bytes = 0;
  return group;
}

RankGroup RankGroup::regrouped(bool everyone) {
  if (state_->link == nullptr)
    fail(ErrorCode::unsupported, "group: ranks are threads: make a new one of their streams");
  const StreamView stream = state_->rank(state_->link->rank()).main.stream;
  std::unique_ptr<Link> old = state_->let_go();
  std::unique_ptr<Link> link;
  try {
    link = old->regroup(everyone, state_->options.deadline);
  } catch (...) {
    state_->link = std::move(old);
    throw;
  }
  state_->link = std::move(old);  // communicators of the group that ended ask it who they are
  std::shared_ptr<State> next = State::linked(std::move(link), stream, state_->options, state_.get());
  if (everyone) return begun(std::move(next));  // as those do that join
  RankGroup group(Made::processes, std::move(next));
  group.communicator(group.state_->link->rank()).share("shrink", {});
  return group;
}

RankGroup RankGroup::shrink() { return regrouped(false); }
RankGroup RankGroup::rejoin() { return regrouped(true); }

std::vector<std::int32_t> RankGroup::joined_ranks() const {
  return state_->link != nullptr ? state_->link->places() : state_->local();
}

}  // namespace moecl
