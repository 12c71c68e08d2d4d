#include "dispatch/rank_group.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <fmt/ranges.h>

#include <array>
#include <exception>
#include <iterator>
#include <numeric>
#include <thread>

#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {
namespace {

/// The exception being caught. If it is the cause of the group's end, the rank's number is put in front.
std::exception_ptr named_cause(std::int32_t rank, const GroupFate& fate) noexcept {
  std::exception_ptr caught = std::current_exception();
  try {
    throw;
  } catch (const Error& error) {
    try {
      const std::string cause = fate.cause();
      if (cause == fmt::format("rank {}: {}", rank, error.what()))
        caught = std::make_exception_ptr(Error(error.code(), cause, error.cl_status()));
    } catch (const std::bad_alloc&) {  // then the number is left out
    }
  } catch (...) {  // an exception of a foreign type
  }
  return caught;
}

}  // namespace

void expect_possible(const GroupOptions& options) {
  constexpr std::int64_t longest_ms = 10'000'000'000;  // clocks count nanoseconds
  require(options.deadline.count() > 0 && options.deadline.count() <= longest_ms,
          "group: a deadline of {} ms is not in [1, {}]", options.deadline.count(), longest_ms);
}

MeetingPlace& RankGroup::State::meeting(const std::vector<std::int32_t>& members, std::int32_t rank) {
  const std::lock_guard lock(mutex_);
  Meetings& of = meetings_[members];
  if (of.here == nullptr) {
    std::vector<std::int32_t> here;
    std::copy_if(members.begin(), members.end(), std::back_inserter(here),
                 [this](auto each) { return is_local(each); });
    of.here = std::make_unique<Meeting>(fate, std::move(here));
  }
  if (of.here->members().size() == members.size()) return *of.here;
  std::unique_ptr<LinkMeeting>& place = of.apart[rank];
  State::Rank& mine = this->rank(rank);
  if (place == nullptr) place = std::make_unique<LinkMeeting>(fate, *mine.link, members, *of.here, mine.phase);
  return *place;
}

RankGroup::State::State(const GroupOptions& given, const std::vector<StreamView>& streams) : options(given) {
  for (const StreamView& stream : streams) require(stream.queue != nullptr, "group: a rank has no stream");
  if (options.peer_memory == nullptr) options.peer_memory = driver_peer_memory(streams);
  fate.deadline = options.deadline;
  transports = make_transports(options.peer_memory);
}

void RankGroup::State::add_ranks(std::size_t size) {
  for (std::size_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Rank>());
    ranks.back()->bytes_received = std::vector<std::atomic<std::uint64_t>>(size);
  }
  choices.assign(size * size, {TransportKind::shared_context, "the rank itself"});
}

std::vector<StreamView> RankGroup::State::local_streams() const {
  std::vector<StreamView> streams;
  for (const std::int32_t of : local) streams.push_back(rank(of).main.stream);
  return streams;
}

void RankGroup::State::choose_transports(std::optional<TransportKind> wanted) {
  // Pairs with the same two devices and contexts get the same transport, so each is probed once.
  std::map<std::array<const void*, 4>, TransportChoice> known;
  for (const std::int32_t to : local)
    for (const std::int32_t from : local) {
      if (from == to) continue;
      const StreamView source = rank(from).main.stream, target = rank(to).main.stream;
      const std::array<const void*, 4> pair = {source.context, source.device, target.context, target.device};
      auto found = known.find(pair);
      if (found == known.end()) found = known.emplace(pair, choose_transport(transports, source, target, wanted)).first;
      choice(from, to) = found->second;
    }
}

RankGroup::RankGroup(std::vector<StreamView> streams, const GroupOptions& options) {
  expect_driver_process();
  require(!streams.empty(), "group: no ranks");
  expect_possible(options);
  state_ = std::make_shared<State>(options, streams);
  state_->add_ranks(streams.size());
  for (std::size_t rank = 0; rank < streams.size(); ++rank) {
    state_->local.push_back(static_cast<std::int32_t>(rank));
    state_->ranks[rank]->main.stream = streams[rank];
  }
  state_->choose_transports(options.transport);
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
  require(state_->is_local(rank), "group: rank {} is another process, this one is {}", rank,
          fmt::join(state_->local, ", "));
  std::vector<std::int32_t> everyone(state_->ranks.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  return {state_, std::move(everyone), rank};
}

const TransportChoice& RankGroup::transport(std::int32_t from, std::int32_t to) const {
  require(from >= 0 && from < size() && to >= 0 && to < size(), "group: no pair {} -> {} of {} ranks", from, to,
          size());
  return state_->choice(from, to);
}

std::vector<std::int32_t> RankGroup::local_ranks() const { return state_->local; }

void RankGroup::abort(std::string_view cause) noexcept { state_->fate.end(cause); }

std::string RankGroup::failure() const {
  const std::string here = state_->fate.cause();
  const Link* const link = state_->link();
  return here.empty() && link != nullptr ? link->ended() : here;
}

void RankGroup::run_local(const std::function<void(Communicator&)>& body) {
  if (state_->local.size() > 1) return run(body);
  Communicator ranks = communicator(state_->local.front());
  body(ranks);
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
      abort(text_of_exception());  // if there was no communicator yet
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = named_cause(rank, state_->fate);
    }
  };
  try {
    for (const std::int32_t rank : local_ranks()) threads.emplace_back(run_rank, rank);
  } catch (const std::exception& error) {
    // Threads that already run must end before this one may throw.
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
