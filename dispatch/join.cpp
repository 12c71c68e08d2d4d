// Groups of ranks that are processes: how they form, shrink and grow again.
#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <algorithm>
#include <numeric>

#include "dispatch/exchange.hpp"
#include "dispatch/processes/group_memory.hpp"
#include "dispatch/rank_group.hpp"
#include "dispatch/transports/by_nodes.hpp"
#include "dispatch/transports/mpi.hpp"
#include "dispatch/transports/shared_memory.hpp"
#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {

RankGroup::State::~State() {
  watch.reset();
  // The threads of couriers and copiers may end the group, which uses a link of any rank. So all of them stop before
  // any link is destroyed.
  for (const auto& rank : ranks) rank->courier.reset(), rank->main.let_go();
}

void RankGroup::State::let_go() {
  watch.reset();
  fate.alone = true;
  fate.end("the ranks form a new group");
  for (const auto& rank : ranks) rank->courier.reset();
}

std::shared_ptr<RankGroup::State> RankGroup::State::linked(Links links, const std::vector<StreamView>& streams,
                                                           const GroupOptions& options, const State* of) {
  auto state = std::make_shared<State>(options, streams);
  Link& through = *links.front();
  state->add_ranks(static_cast<std::size_t>(through.size()));
  state->nodes = through.nodes();
  state->fate.settle = [&through](std::string_view cause) { return through.end(cause); };
  state->fate.accuse = [&through] { return accused(through, through.silent()); };
  std::vector<Link*> watched;
  for (std::size_t i = 0; i < links.size(); ++i) {
    state->local.push_back(links[i]->rank());
    Rank& mine = state->rank(links[i]->rank());
    mine.main.stream = streams[i];
    mine.courier = std::make_unique<Courier>(streams[i], *links[i], state->fate);
    watched.push_back(links[i].get());
    mine.link = std::move(links[i]);
  }
  std::vector<std::int32_t> old;  // each rank's number in the earlier group
  for (const std::int32_t place : through.places())
    if (of != nullptr) {
      const std::vector<std::int32_t>& before = of->link()->places();
      old.push_back(static_cast<std::int32_t>(std::find(before.begin(), before.end(), place) - before.begin()));
    }
  for (std::int32_t to = 0; to < through.size(); ++to)
    for (std::int32_t from = 0; from < through.size(); ++from)
      if (from != to)
        state->choice(from, to) =
            of != nullptr ? of->choice(old[static_cast<std::size_t>(from)], old[static_cast<std::size_t>(to)])
                          : TransportChoice{through.kind(from, to), "not probed"};
  if (of == nullptr) state->choose_transports(std::nullopt);
  state->watch = std::make_unique<Watch>(std::move(watched), state->fate);
  return state;
}

namespace {

/// Values that must be equal on all processes of a group.
std::vector<Agreed> agreed_about(const GroupOptions& options) {
  return {{"version", std::string(MOECL_VERSION)}, {"deadline in ms", options.deadline.count()}};
}

/// Every rank sends a pattern to each other rank. @return  GB/s from each of them
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

/// Agrees with the other ranks, learns how threads of other processes exchange with each other, and probes the pairs of
/// this rank with ranks of other processes.
void RankGroup::State::begin(Communicator& ranks) {
  const std::int32_t mine = ranks.rank(), size = ranks.size();
  std::vector<std::int64_t> kinds;  // how this rank receives from each rank of its process; -1: another process
  for (std::int32_t from = 0; from < size; ++from)
    kinds.push_back(is_local(from) ? static_cast<std::int64_t>(choice(from, mine).kind) : -1);
  const auto all = ranks.share("join", kinds, agreed_about(options));
  if (size == 1) return;
  const std::vector<double> rates = probe_all(ranks);
  for (std::int32_t peer = 0; peer < size; ++peer) {
    if (is_local(peer)) continue;
    const bool same_node = nodes[static_cast<std::size_t>(peer)] == nodes[static_cast<std::size_t>(mine)];
    const std::string reason =
        fmt::format("{}, {:.1f} GB/s in the probe of all at once", same_node ? "another process" : "another node",
                    rates[static_cast<std::size_t>(peer)]);
    choice(peer, mine).reason = choice(mine, peer).reason = reason;
    if (mine != local.front()) continue;
    for (std::int32_t from = 0; from < size; ++from)
      if (const std::int64_t kind = all[static_cast<std::size_t>(peer)].at(static_cast<std::size_t>(from));
          from != peer && kind >= 0 && kind < static_cast<std::int64_t>(transports.size()))
        choice(from, peer) = {static_cast<TransportKind>(kind), "threads of another process"};
  }
}

RankGroup RankGroup::join(const std::string& name, std::int32_t rank, std::int32_t size, StreamView stream,
                          const GroupOptions& options) {
  return join(name, {{rank, stream}}, size, options);
}

RankGroup RankGroup::join(const std::string& name, std::vector<Joining> ranks, std::int32_t size,
                          const GroupOptions& options) {
  expect_driver_process();
  expect_possible(options);
  require(!options.transport || *options.transport == TransportKind::shared_memory,
          "join: transport {}: processes of a node have shared_memory",
          moecl::name(options.transport.value_or(TransportKind::shared_memory)));
  std::sort(ranks.begin(), ranks.end(), [](const Joining& a, const Joining& b) { return a.rank < b.rank; });
  std::vector<std::int32_t> numbers;
  std::vector<StreamView> streams;
  for (const Joining& one : ranks) {
    require(one.stream.queue != nullptr, "join: rank {} has no stream", one.rank);
    numbers.push_back(one.rank);
    streams.push_back(one.stream);
  }
  Links links = links_by_shared_memory(name, numbers, size, options.deadline);
  return begun(State::linked(std::move(links), streams, options, nullptr));
}

RankGroup RankGroup::from_mpi(const void* mpi_comm, StreamView stream, const GroupOptions& options) {
  return from_mpi(mpi_comm, std::vector<StreamView>{stream}, options);
}

RankGroup RankGroup::from_mpi(const void* mpi_comm, const std::vector<StreamView>& streams,
                              const GroupOptions& options) {
  expect_driver_process();
  for (const StreamView& stream : streams) require(stream.queue != nullptr, "mpi: a rank has no stream");
  expect_possible(options);
  require(!options.transport || *options.transport == TransportKind::mpi,
          "mpi: transport {}: processes of MPI have mpi, and on a node shared_memory where nobody asks",
          moecl::name(options.transport.value_or(TransportKind::mpi)));
  const auto process =
      std::make_shared<MpiProcess>(mpi_comm, static_cast<std::int32_t>(streams.size()), options.deadline);
  try {
    Links links = links_by_mpi(process);
    if (!options.transport) links = links_by_nodes(std::move(links), process->name_of_node(), options.deadline);
    return begun(State::linked(std::move(links), streams, options, nullptr));
  } catch (const std::exception& error) {
    process->end(error.what());  // otherwise MPI waits for missing processes when this one ends
    throw;
  }
}

void RankGroup::remove(const std::string& name) noexcept { GroupMemory::remove(name); }

RankGroup RankGroup::begun(std::shared_ptr<State> state) {
  RankGroup group(Made::processes, std::move(state));
  group.run_local([&](Communicator& ranks) { ranks.together([&] { group.state_->begin(ranks); }); });
  for (const std::int32_t rank : group.local_ranks()) {
    State::Rank& mine = group.state_->rank(rank);
    mine.meetings = 0;
    for (auto& bytes : mine.bytes_received) bytes = 0;
  }
  return group;
}

RankGroup RankGroup::regrouped(bool everyone) {
  if (state_->link() == nullptr)
    fail(ErrorCode::unsupported, "group: ranks are threads: make a new one of their streams");
  state_->let_go();
  Links links = state_->link()->regroup(everyone, state_->options.deadline);
  std::shared_ptr<State> next =
      State::linked(std::move(links), state_->local_streams(), state_->options, everyone ? nullptr : state_.get());
  if (everyone) return begun(std::move(next));  // agree and probe, as after a join
  RankGroup group(Made::processes, std::move(next));
  group.run_local([](Communicator& ranks) { ranks.share("shrink", {}); });
  return group;
}

RankGroup RankGroup::shrink() { return regrouped(false); }
RankGroup RankGroup::rejoin() { return regrouped(true); }

std::vector<std::int32_t> RankGroup::joined_ranks() const {
  const Link* const link = state_->link();
  return link != nullptr ? link->places() : state_->local;
}

}  // namespace moecl
