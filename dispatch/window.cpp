#include <moecl/context.hpp>
#include <moecl/window.hpp>

#include "dispatch/exchange.hpp"

namespace moecl {

struct Window::State {
  Communicator ranks;
  std::uint64_t bytes;
  std::vector<std::shared_ptr<const Buffer>> memory;  ///< of every rank, as this rank sees it; null: it cannot
  std::vector<std::shared_ptr<const Event>> open;     ///< completes when each rank's memory may be overwritten
  std::vector<std::uint64_t> put_bytes;               ///< bytes put into each rank's memory in this epoch
  /// Puts into the memory of other processes are kept here; those processes fetch them at the fence.
  struct Put {
    std::int32_t peer;
    std::uint64_t offset;
    HeldView source;
  };
  std::vector<Put> kept;

  template <class Body>
  void together(Body body) {
    ranks.together([&] { body(Communicator::Exchange(ranks)); });
  }
  BufferView memory_of(std::int32_t rank) const {
    return memory[static_cast<std::size_t>(rank)]->view().slice(0, bytes);
  }
  /// Whether `from` itself copies into the window of `to`.
  bool direct(const Communicator::Exchange& exchange, std::int32_t from, std::int32_t to) const {
    const Transport& way = exchange.transport(from, to);
    return way.shares_events() || (way.peer_memory() != nullptr && bytes <= way.peer_memory()->max_bytes());
  }
  std::vector<std::shared_ptr<const Buffer>> allocate(const Communicator::Exchange& exchange) const;
  MeetingNote note_of_fence(std::shared_ptr<const Event> ready) const;
  std::vector<RowsJob::Fetch> fetched_at_fence(const Communicator::Exchange& exchange,
                                               const Communicator::Exchange::Notes& notes) const;
};

/// The note's numbers: bytes put into each rank's memory, then rank and offset of each piece that is shown.
MeetingNote Window::State::note_of_fence(std::shared_ptr<const Event> ready) const {
  MeetingNote note;
  note.what = "fence";
  note.numbers = put_bytes;
  note.ready = std::move(ready);
  for (const Put& put : kept) {
    note.numbers.push_back(static_cast<std::uint64_t>(put.peer));
    note.numbers.push_back(put.offset);
    note.memory.emplace_back(BufferView(put.source));
  }
  return note;
}

std::vector<RowsJob::Fetch> Window::State::fetched_at_fence(const Communicator::Exchange& exchange,
                                                            const Communicator::Exchange::Notes& notes) const {
  std::vector<RowsJob::Fetch> fetches;
  for (std::int32_t peer = 0; peer < ranks.size(); ++peer) {
    if (!exchange.is_apart(peer)) continue;
    const MeetingNote& note = notes[static_cast<std::size_t>(peer)];
    const auto size = static_cast<std::size_t>(ranks.size());
    require(note.numbers.size() == size + 2 * note.memory.size(), "fence: rank {} shows {} pieces with {} numbers",
            peer, note.memory.size(), note.numbers.size());
    for (std::size_t piece = 0; piece < note.memory.size(); ++piece)
      if (const std::uint64_t* const of = note.numbers.data() + size + 2 * piece;
          of[0] == static_cast<std::uint64_t>(ranks.rank()))
        fetches.push_back(
            {exchange.group_rank(peer), piece, 0, memory_of(ranks.rank()).slice(of[1], note.memory[piece].size_bytes)});
  }
  return fetches;
}

/// This rank's memory, as each member sees it. For a member whose commands cannot reach it: as this rank sees it.
std::vector<std::shared_ptr<const Buffer>> Window::State::allocate(const Communicator::Exchange& exchange) const {
  const std::int32_t mine = ranks.rank(), size = ranks.size();
  PeerMemory& peer_memory = *exchange.group.options.peer_memory;
  std::vector<std::int32_t> users;
  std::vector<StreamView> streams;
  for (std::int32_t peer = 0; peer < size; ++peer) {
    if (exchange.shares_events(peer, mine)) continue;
    if (exchange.transport(peer, mine).peer_memory() != nullptr && !direct(exchange, peer, mine))
      exchange.lane.stream.context->log(
          LogLevel::warning,
          fmt::format("window: {} bytes are more than the {} of one piece of peers' memory: puts from "
                      "rank {} go through chunks",
                      bytes, peer_memory.max_bytes(), peer));
    if (!direct(exchange, peer, mine)) continue;
    users.push_back(peer);
    streams.push_back(exchange.stream_of(peer));
  }
  if (users.empty() || bytes == 0)
    return {static_cast<std::size_t>(size), std::make_shared<const Buffer>(*exchange.lane.stream.context, bytes)};
  std::vector<Buffer> views = peer_memory.allocate(exchange.lane.stream, streams, bytes);
  std::vector<std::shared_ptr<const Buffer>> seen(static_cast<std::size_t>(size),
                                                  std::make_shared<const Buffer>(std::move(views.front())));
  for (std::size_t i = 0; i < users.size(); ++i)
    seen[static_cast<std::size_t>(users[i])] = std::make_shared<const Buffer>(std::move(views[i + 1]));
  return seen;
}

Window::Window(const Communicator& ranks, std::uint64_t bytes) : state_(new State{ranks, bytes, {}, {}, {}, {}}) {
  state_->together([&](const Communicator::Exchange& exchange) {
    const auto mine = static_cast<std::size_t>(ranks.rank());
    const auto notes = exchange.meet(
        {"window", {{"bytes", bytes}}, {}, {}, recorded(exchange.lane.stream), {}, state_->allocate(exchange)});
    for (const MeetingNote& note : *notes) {
      state_->memory.push_back(note.window.empty() ? nullptr : note.window[mine]);  // of another process
      state_->open.push_back(note.ready);
    }
  });
  state_->put_bytes.assign(state_->memory.size(), 0);
}

Window::~Window() = default;
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;

BufferView Window::memory() const { return state_->memory_of(state_->ranks.rank()); }

void Window::put(std::int32_t peer, std::uint64_t offset, BufferView source) {
  Communicator& ranks = state_->ranks;
  require(peer >= 0 && peer < ranks.size(), "put: rank {} is not in [0, {})", peer, ranks.size());
  require(offset <= state_->bytes && source.size_bytes <= state_->bytes - offset,
          "put: {} bytes at {} leave a window of {}", source.size_bytes, offset, state_->bytes);
  const Communicator::Exchange exchange(ranks);
  exchange.group.fate.expect_whole();
  if (source.size_bytes == 0) return;
  const std::shared_ptr<const Event> open = state_->open[static_cast<std::size_t>(peer)];
  std::uint64_t& put_bytes = state_->put_bytes[static_cast<std::size_t>(peer)];
  const bool first = put_bytes == 0;
  put_bytes += source.size_bytes;
  if (exchange.is_apart(peer)) return state_->kept.push_back({peer, offset, source});
  const BufferView target = state_->memory_of(peer).slice(offset, source.size_bytes);
  if (state_->direct(exchange, ranks.rank(), peer)) {
    if (first && !exchange.shares_events(ranks.rank(), peer)) exchange.await(peer, open);
    return enqueue_copy(exchange.lane.stream, source, target);
  }
  StagedJob job = exchange.staged_job(ranks.rank(), source, peer, target);
  job.from_ready = recorded(exchange.lane.stream);
  job.to_ready = open;
  exchange.rank(peer).main.copier(exchange.group.fate).enqueue(std::move(job));
}

void Window::fence() {
  state_->together([&](const Communicator::Exchange& exchange) {
    const StreamView stream = exchange.lane.stream;
    const std::int32_t mine = state_->ranks.rank(), size = state_->ranks.size();
    exchange.group.fate.expect_whole();
    const auto ready = recorded(stream);
    // Copiers work in order, so a job without bytes completes after all jobs before it.
    const auto after_puts = [&](std::int32_t to, std::shared_ptr<UserEvent> StagedJob::*end) {
      StagedJob job;
      job.*end = exchange.group.fate.awaited_event(stream);
      exchange.rank(to).main.copier(exchange.group.fate).enqueue(std::move(job));
    };
    for (std::int32_t peer = 0; peer < size; ++peer)
      if (state_->put_bytes[static_cast<std::size_t>(peer)] != 0 && !state_->direct(exchange, mine, peer) &&
          !exchange.is_apart(peer))
        after_puts(peer, &StagedJob::left);
    const auto notes = exchange.meet(state_->note_of_fence(ready));
    std::vector<_cl_event*> done;
    bool staged = false;
    for (std::int32_t peer = 0; peer < size; ++peer) {
      const MeetingNote& note = (*notes)[static_cast<std::size_t>(peer)];
      state_->open[static_cast<std::size_t>(peer)] = note.ready;
      if (peer == mine) continue;
      const std::uint64_t received = note.numbers[static_cast<std::size_t>(mine)];
      exchange.count_received(peer, received);
      if (exchange.is_apart(peer)) continue;
      if (exchange.shares_events(peer, mine))
        done.push_back(note.ready->handle());
      else if (!state_->direct(exchange, peer, mine))
        staged = staged || received != 0;
      else if (received != 0)
        exchange.await(peer, note.ready);
    }
    wait_on_stream(stream, done);
    if (staged) after_puts(mine, &StagedJob::arrived);
    exchange.carry(*notes, state_->fetched_at_fence(exchange, *notes), ready);
    state_->kept.clear();
    state_->put_bytes.assign(state_->put_bytes.size(), 0);
  });
}

}  // namespace moecl
