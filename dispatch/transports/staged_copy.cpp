#include "dispatch/transports/staged_copy.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/trace.hpp>

#include <algorithm>
#include <array>

#include "dispatch/stream_events.hpp"
#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

/// Whether all commands of the queue end soon. A command whose event the driver refused to complete never ends.
bool is_idle(StreamView queue) noexcept {
  try {
    return completes_within(*recorded(queue), GroupFate::grace);
  } catch (const std::exception&) {  // a command that failed has ended
    return true;
  }
}

WaitList wait_for(_cl_event* const& event) { return {&event, event != nullptr ? 1U : 0U}; }

}  // namespace

StagedCopier::StagedCopier(StreamView to, GroupFate& fate)
    : fate_(fate), to_queue_(Stream::beside(to, false)), thread_([this] { work(); }) {}

StagedCopier::~StagedCopier() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (auto& [device, source] : sources_)
    if (source.pinned != nullptr && !(is_idle(source.queue) && is_idle(to_queue_)))
      static_cast<void>(source.pinned.release());  // commands still read and write it
}

void StagedCopier::enqueue(std::variant<StagedJob, CountedJob> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void StagedCopier::end_group(std::uint64_t bytes, const char* why) noexcept {
  try {
    fate_.end(fmt::format("staged copy of {} bytes: {}", bytes, why));
  } catch (const std::bad_alloc&) {  // then the text alone
    fate_.end(why);
  }
}

void StagedCopier::complete(const std::shared_ptr<UserEvent>& event) {
  if (event != nullptr && !event->complete()) fate_.end(refused_event);
}

void StagedCopier::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::visit([&](const auto& of) { run(of); }, job);
  }
}

void StagedCopier::run(const StagedJob& job) {
  try {
    if (fate_.cause().empty()) job.from.size_bytes != 0 ? copy(job) : wait_for_sender(job);
  } catch (const std::exception& error) {
    end_group(job.from.size_bytes, error.what());
  }
  complete(job.left);
  complete(job.arrived);
}

void StagedCopier::run(const CountedJob& job) {
  std::uint64_t bytes = 0;
  try {
    if (fate_.cause().empty()) {
      std::vector<Event> copied;
      for (const StagedJob& each : job.copies.read(to_queue_, *job.free, fate_)) {
        bytes = each.from.size_bytes;
        if (!each.direct) {
          copy(each);
          continue;
        }
        _cl_event* const ready = each.from_ready->handle();
        enqueue_copy(to_queue_, each.from, each.to, {wait_for(ready), &copied.emplace_back()});
      }
      to_queue_.view().flush();
      for (const Event& event : copied) fate_.wait(event);
    }
  } catch (const std::exception& error) {
    end_group(bytes, error.what());
  }
  for (const auto& event : job.left) complete(event);
  complete(job.arrived);
}

StagedCopier::Source& StagedCopier::source_of(const StagedJob& job) {
  Source& source = sources_[job.from_stream.device];
  if (source.queue.view().queue == nullptr) source.queue = Stream::beside(job.from_stream, false);
  return source;
}

void StagedCopier::make_room(Source& source, const StagedJob& job) const {
  // A single small message needs no room for a pipeline of chunks.
  const std::uint64_t wanted =
      job.from.size_bytes <= chunk_bytes ? (job.from.size_bytes + 4095) / 4096 * 4096 : chunk_bytes * slots;
  if (job.peer_memory != nullptr) {
    if (!source.shared.empty() && source.shared.front().size_bytes() >= wanted) return;
    source.shared.clear();
    source.shared = job.peer_memory->allocate(to_queue_, {source.queue}, wanted);
  } else if (source.pinned == nullptr || source.pinned->size_bytes() < wanted) {
    source.pinned.reset();
    source.pinned = std::make_unique<PinnedMemory>(source.queue.view(), wanted);
  }
}

void StagedCopier::leave_sender(const Source& source, BufferView from, std::uint64_t place, Submit submit) const {
  if (source.shared.empty())
    enqueue_read(source.queue, from, source.pinned->data() + place, from.size_bytes, submit);
  else
    enqueue_copy(source.queue, from, source.shared[1].view().slice(place, from.size_bytes), submit);
  source.queue.view().flush();
}

void StagedCopier::reach_receiver(const Source& source, std::uint64_t place, BufferView to, Submit submit) const {
  if (source.shared.empty())
    enqueue_write(to_queue_, to, source.pinned->data() + place, to.size_bytes, submit);
  else
    enqueue_copy(to_queue_, source.shared[0].view().slice(place, to.size_bytes), to, submit);
  to_queue_.view().flush();
}

/// Waits by a command of this thread's own queue. rusticl keeps a queue locked while its owner is in clFinish, and the
/// owner may be waiting for this very job.
void StagedCopier::wait_for_sender(const StagedJob& job) {
  if (job.from_ready == nullptr) return;
  const Source& source = source_of(job);
  _cl_event* const ready = job.from_ready->handle();
  Event came;
  enqueue_marker(source.queue, {wait_for(ready), &came});
  source.queue.view().flush();
  fate_.wait(came);
}

/// A pipeline: reads of later chunks run at the same time as writes of earlier ones.
void StagedCopier::copy(const StagedJob& job) {
  Source& source = source_of(job);
  make_room(source, job);
  std::string block;
  if (job.trace != nullptr) {
    wait_for_sender(job);  // the trace must not show this wait
    block =
        fmt::format("staged copy from rank {} to rank {}, {} bytes", job.from_rank, job.to_rank, job.from.size_bytes);
  }
  const Trace::Span span(job.trace, std::move(block));
  const std::uint64_t total = job.from.size_bytes, count = quotient_up(total, chunk_bytes);
  std::array<Event, slots> read, written;
  const auto bytes_of = [&](std::uint64_t chunk) { return std::min(chunk_bytes, total - chunk * chunk_bytes); };
  const auto write = [&](std::uint64_t chunk) {
    const std::size_t slot = chunk % slots;
    fate_.wait(read[slot]);
    _cl_event* const ready = job.to_ready->handle();
    reach_receiver(source, slot * chunk_bytes, job.to.slice(chunk * chunk_bytes, bytes_of(chunk)),
                   {wait_for(ready), &written[slot]});
  };
  for (std::uint64_t chunk = 0; chunk < count; ++chunk) {
    const std::size_t slot = chunk % slots;
    if (chunk >= slots) fate_.wait(written[slot]);
    _cl_event* const ready = job.from_ready->handle();
    leave_sender(source, job.from.slice(chunk * chunk_bytes, bytes_of(chunk)), slot * chunk_bytes,
                 {wait_for(ready), &read[slot]});
    if (chunk > 0) write(chunk - 1);
  }
  write(count - 1);
  complete(job.left);
  for (const Event& event : written) fate_.wait(event);
}

}  // namespace moecl
