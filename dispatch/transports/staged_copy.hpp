#pragma once
// Copies between any two contexts, made by a thread in chunks: device -> pinned host memory -> device, or through
// memory that both devices can access.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/peer_memory.hpp>
#include <moecl/stream.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "dispatch/counted_copies.hpp"
#include "dispatch/meeting.hpp"
#include "runtime/pinned_memory.hpp"
#include "runtime/user_event.hpp"

namespace moecl {

/// One copy between contexts. A job without bytes only waits for from_ready and completes its events, after all jobs
/// before it.
struct StagedJob {
  StreamView from_stream;                   ///< of the sender; its queue is not used
  HeldView from, to;                        ///< of the same size
  std::shared_ptr<const Event> from_ready;  ///< in the sender's context: `from` holds its bytes
  std::shared_ptr<const Event> to_ready;    ///< in the receiver's context: `to` may be overwritten
  std::shared_ptr<UserEvent> left;          ///< optional: completed when `from` has been read
  std::shared_ptr<UserEvent> arrived;       ///< optional: completed when `to` holds the bytes
  PeerMemory* peer_memory = nullptr;        ///< optional: memory of the receiver's device for the chunks
  Trace* trace = nullptr;                   ///< optional: records the copy
  std::int32_t from_rank = 0, to_rank = 0;  ///< for the trace
  bool direct = false;  ///< of a CountedJob: both are of one context, so the receiver's queue copies
};

/// Copies whose sizes stand in a table on the receiver's device.
struct CountedJob {
  CountedCopies<StagedJob> copies;               ///< the events of this job serve all copies
  std::shared_ptr<const Event> free;             ///< the table is written, and targets may be overwritten
  std::vector<std::shared_ptr<UserEvent>> left;  ///< completed when all sources have been read
  std::shared_ptr<UserEvent> arrived;            ///< completed when all targets hold their bytes
};

/// Copies into the memory of one rank. Has queues and pinned memory of its own, so that the rank's stream goes on
/// meanwhile.
///
/// A copy that fails ends the group, and completes its events so that no queue hangs.
class StagedCopier {
 public:
  StagedCopier(StreamView to, GroupFate& fate);
  /// Finishes all jobs that were enqueued. Stops the host.
  ~StagedCopier();
  StagedCopier(const StagedCopier&) = delete;
  StagedCopier& operator=(const StagedCopier&) = delete;

  /// Async. Jobs run in order.
  void enqueue(std::variant<StagedJob, CountedJob> job);

  static constexpr std::uint64_t chunk_bytes = 8 << 20;
  static constexpr std::size_t slots = 4;

 private:
  /// The queue that reads from one sender's device, and the memory of its chunks: pinned host memory, or memory of both
  /// devices.
  struct Source {
    Stream queue;
    std::unique_ptr<PinnedMemory> pinned;
    std::vector<Buffer> shared;  ///< two views: the receiver's, then the sender's
  };

  void work();
  void run(const StagedJob& job);
  void run(const CountedJob& job);
  void end_group(std::uint64_t bytes, const char* why) noexcept;
  void complete(const std::shared_ptr<UserEvent>& event);
  void copy(const StagedJob& job);
  void wait_for_sender(const StagedJob& job);
  Source& source_of(const StagedJob& job);
  void make_room(Source& source, const StagedJob& job) const;
  void leave_sender(const Source& source, BufferView from, std::uint64_t place, Submit submit) const;
  void reach_receiver(const Source& source, std::uint64_t place, BufferView to, Submit submit) const;

  GroupFate& fate_;
  Stream to_queue_;
  std::map<const Device*, Source> sources_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::variant<StagedJob, CountedJob>> jobs_;
  bool closing_ = false;
  std::thread thread_;  ///< last: it uses everything above
};

}  // namespace moecl
