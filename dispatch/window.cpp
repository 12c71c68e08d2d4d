#include <moecl/context.hpp>
#include <moecl/window.hpp>

#include "dispatch/exchange.hpp"

namespace moecl {

struct Window::State {
  Communicator ranks;
  std::uint64_t bytes;
  std::vector<std::shared_ptr<const Buffer>> memory;  ///< of every rank
  std::vector<std::shared_ptr<const Event>> open;     ///< from when on each rank's may be overwritten
  std::vector<std::uint64_t> put_bytes;               ///< into each rank's, in this epoch

  template <class Body>
  void together(Body body) {
    try {
      body(Communicator::Exchange(ranks));
    } catch (const Error& error) {
      ranks.abort(error.what());
      throw;
    }
  }
  const Buffer& memory_of(std::int32_t rank) const { return *memory[static_cast<std::size_t>(rank)]; }
};

Window::Window(const Communicator& ranks, std::uint64_t bytes) : state_(new State{ranks, bytes, {}, {}, {}}) {
  state_->together([&](const Communicator::Exchange& exchange) {
    const auto mine = std::make_shared<const Buffer>(*exchange.lane.stream.context, bytes);
    const auto notes = exchange.meet({"window", {bytes}, {}, recorded(exchange.lane.stream), {}, mine});
    for (const MeetingNote& note : *notes) {
      require(note.numbers == notes->front().numbers, "window: {} bytes here, {} on the first rank", note.numbers[0],
              notes->front().numbers[0]);
      state_->memory.push_back(note.window);
      state_->open.push_back(note.ready);
    }
  });
  state_->put_bytes.assign(state_->memory.size(), 0);
}

Window::~Window() = default;
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;

BufferView Window::memory() const { return state_->memory_of(state_->ranks.rank()).view(); }

void Window::put(std::int32_t peer, std::uint64_t offset, BufferView source) {
  Communicator& ranks = state_->ranks;
  require(peer >= 0 && peer < ranks.size(), "put: rank {} is not in [0, {})", peer, ranks.size());
  require(offset <= state_->bytes && source.size_bytes <= state_->bytes - offset,
          "put: {} bytes at {} leave a window of {}", source.size_bytes, offset, state_->bytes);
  const Communicator::Exchange exchange(ranks);
  exchange.group.fate.expect_whole();
  if (source.size_bytes == 0) return;
  state_->put_bytes[static_cast<std::size_t>(peer)] += source.size_bytes;
  const BufferView target = state_->memory_of(peer).view().slice(offset, source.size_bytes);
  if (!exchange.staged_between(ranks.rank(), peer)) return enqueue_copy(exchange.lane.stream, source, target);
  StagedJob job = exchange.staged_job(ranks.rank(), source, peer, target);
  job.from_ready = recorded(exchange.lane.stream);
  job.to_ready = state_->open[static_cast<std::size_t>(peer)];
  exchange.rank(peer).main.copier->enqueue(std::move(job));
}

void Window::fence() {
  state_->together([&](const Communicator::Exchange& exchange) {
    const StreamView stream = exchange.lane.stream;
    const std::int32_t mine = state_->ranks.rank(), size = state_->ranks.size();
    exchange.group.fate.expect_whole();
    const auto ready = recorded(stream);
    // Copiers work in order: a job without bytes is done when all before it are. Their events are waited for before
    // anybody can complete them, as in Exchange::run.
    const auto after_puts = [&](std::int32_t to, std::shared_ptr<UserEvent> StagedJob::*end) {
      StagedJob job;
      job.*end = exchange.group.fate.watched_event(*stream.context);
      wait_on_stream(stream, {(job.*end)->handle()});
      exchange.rank(to).main.copier->enqueue(std::move(job));
    };
    for (std::int32_t peer = 0; peer < size; ++peer)
      if (state_->put_bytes[static_cast<std::size_t>(peer)] != 0 && exchange.staged_between(mine, peer))
        after_puts(peer, &StagedJob::left);
    const auto notes = exchange.meet({"fence", state_->put_bytes, {}, ready, {}, {}});
    std::vector<_cl_event*> done;
    bool staged = false;
    for (std::int32_t peer = 0; peer < size; ++peer) {
      const MeetingNote& note = (*notes)[static_cast<std::size_t>(peer)];
      state_->open[static_cast<std::size_t>(peer)] = note.ready;
      if (peer == mine) continue;
      const std::uint64_t received = note.numbers[static_cast<std::size_t>(mine)];
      exchange.count_received(peer, received);
      if (!exchange.staged_between(peer, mine))
        done.push_back(note.ready->handle());
      else
        staged = staged || received != 0;
    }
    wait_on_stream(stream, done);
    if (staged) after_puts(mine, &StagedJob::arrived);
    state_->put_bytes.assign(state_->put_bytes.size(), 0);
  });
}

}  // namespace moecl
