#include "dispatch/rank_group.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <exception>
#include <numeric>
#include <thread>

#include "dispatch/processes/link_meeting.hpp"
#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {
namespace {

/// The exception being caught; with the rank's number in front where it is the cause of the group's end.
std::exception_ptr named_cause(std::int32_t rank, const GroupFate& fate) noexcept {
  std::exception_ptr caught = std::current_exception();
  try {
    throw;
  } catch (const Error& error) {
    try {
      const std::string cause = fate.cause();
      if (cause == fmt::format("rank {}: {}", rank, error.what()))
        caught = std::make_exception_ptr(Error(error.code(), cause, error.cl_status()));
    } catch (const std::bad_alloc&) {  // then without the number
    }
  } catch (...) {  // of others' types
  }
  return caught;
}

}  // namespace

void expect_possible(const GroupOptions& options) {
  constexpr std::int64_t longest_ms = 10'000'000'000;  // clocks count nanoseconds
  require(options.deadline.count() > 0 && options.deadline.count() <= longest_ms,
          "group: a deadline of {} ms is not in [1, {}]", options.deadline.count(), longest_ms);
}

MeetingPlace& RankGroup::State::meeting(const std::vector<std::int32_t>& members) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<MeetingPlace>& place = meetings_[members];
  if (place != nullptr) return *place;
  if (link != nullptr && members.size() > 1)
    place = std::make_unique<LinkMeeting>(fate, *link, members, rank(link->rank()).phase);
  else
    place = std::make_unique<Meeting>(fate, members);
  return *place;
}

std::vector<std::int32_t> RankGroup::State::local() const {
  if (link != nullptr) return {link->rank()};
  std::vector<std::int32_t> all(ranks.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

RankGroup::RankGroup(std::vector<StreamView> streams, const GroupOptions& options) : state_(std::make_shared<State>()) {
  expect_driver_process();
  require(!streams.empty(), "group: no ranks");
  expect_possible(options);
  state_->options = options;
  state_->fate.deadline = options.deadline;
  if (options.peer_memory == nullptr) state_->options.peer_memory = driver_peer_memory(streams);
  state_->transports = make_transports(state_->options.peer_memory);
  for (const StreamView& stream : streams) {
    require(stream.queue != nullptr, "group: rank {} has no stream", state_->ranks.size());
    state_->ranks.push_back(std::make_unique<State::Rank>());
    state_->ranks.back()->main.stream = stream;
    state_->ranks.back()->bytes_received = std::vector<std::atomic<std::uint64_t>>(streams.size());
  }
  // Pairs of the same two devices and contexts are alike.
  std::map<std::pair<std::pair<const Context*, const Device*>, std::pair<const Context*, const Device*>>,
           TransportChoice>
      known;
  for (const StreamView& to : streams)
    for (const StreamView& from : streams) {
      if (&from == &to) {
        state_->choices.push_back({TransportKind::shared_context, "the rank itself"});
        continue;
      }
      const auto pair = std::pair(std::pair<const Context*, const Device*>(from.context, from.device),
                                  std::pair<const Context*, const Device*>(to.context, to.device));
      auto found = known.find(pair);
      if (found == known.end())
        found = known.emplace(pair, choose_transport(state_->transports, from, to, options.transport)).first;
      state_->choices.push_back(found->second);
    }
  for (std::int32_t to = 0; to < size(); ++to)
    for (std::int32_t from = 0; from < size(); ++from)
      if (Communicator::Lane& lane = state_->rank(to).main;
          lane.copier == nullptr && !state_->transport(from, to).shares_events())
        lane.copier = std::make_unique<StagedCopier>(lane.stream, state_->fate);
}

RankGroup::RankGroup(Made /*of*/, std::shared_ptr<State> state) : state_(std::move(state)) {}
RankGroup::RankGroup(RankGroup&&) noexcept = default;
RankGroup& RankGroup::operator=(RankGroup&&) noexcept = default;
RankGroup::~RankGroup() = default;

std::int32_t RankGroup::size() const noexcept { return static_cast<std::int32_t>(state_->ranks.size()); }

void RankGroup::set_streams(const std::vector<StreamView>& streams) {
  const std::vector<std::int32_t> ranks = local_ranks();
  require(streams.size() == ranks.size(), "group: {} streams for {} ranks", streams.size(), ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const StreamView old = state_->rank(ranks[i]).main.stream;
    require(streams[i].queue != nullptr && streams[i].context == old.context && streams[i].device == old.device,
            "group: the new stream of rank {} is not of its context and device", ranks[i]);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) state_->rank(ranks[i]).main.stream = streams[i];
}

Communicator RankGroup::communicator(std::int32_t rank) {
  require(rank >= 0 && rank < size(), "group: rank {} is not in [0, {})", rank, size());
  require(state_->link == nullptr || rank == state_->link->rank(), "group: rank {} is another process, this one is {}",
          rank, state_->link == nullptr ? 0 : state_->link->rank());
  std::vector<std::int32_t> everyone(state_->ranks.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  return {state_, std::move(everyone), rank};
}

const TransportChoice& RankGroup::transport(std::int32_t from, std::int32_t to) const {
  require(from >= 0 && from < size() && to >= 0 && to < size(), "group: no pair {} -> {} of {} ranks", from, to,
          size());
  return state_->choice(from, to);
}

std::vector<std::int32_t> RankGroup::local_ranks() const { return state_->local(); }

void RankGroup::abort(std::string_view cause) noexcept { state_->fate.end(cause); }

std::string RankGroup::failure() const {
  const std::string here = state_->fate.cause();
  return here.empty() && state_->link != nullptr ? state_->link->ended() : here;
}

void RankGroup::run(const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const auto run_rank = [&](std::int32_t rank) {
    try {
      Communicator communicator = this->communicator(rank);
      communicator.together([&] { body(communicator); });
    } catch (...) {
      abort(text_of_exception());  // where there was no communicator yet
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = named_cause(rank, state_->fate);
    }
  };
  try {
    for (const std::int32_t rank : local_ranks()) threads.emplace_back(run_rank, rank);
  } catch (const std::exception& error) {
    // Threads that run must end before this one may throw.
    std::exception_ptr cause = std::current_exception();
    try {
      const Error named(ErrorCode::out_of_memory,
                        fmt::format("rank {}: no thread for it: {}", threads.size(), error.what()));
      abort(named.what());
      cause = std::make_exception_ptr(named);
    } catch (const std::bad_alloc&) {
      abort(error.what());
    }
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = cause;
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
  state_->fate.expect_whole();
}

}  // namespace moecl
