#pragma once
// Copies between any two contexts by a thread, in chunks: device -> pinned host memory -> device, or where there is
// memory that both devices reach, through that.
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

/// One copy between contexts. Without bytes it only waits for from_ready and completes its events, after the jobs
/// before it.
struct StagedJob {
  StreamView from_stream;                   ///< of the sender; its queue is not used
  HeldView from, to;                        ///< of the same size
  std::shared_ptr<const Event> from_ready;  ///< in the sender's context: the bytes are there
  std::shared_ptr<const Event> to_ready;    ///< in the receiver's: nobody needs what `to` held
  std::shared_ptr<UserEvent> left;          ///< optional: completed when `from` has been read
  std::shared_ptr<UserEvent> arrived;       ///< optional: completed when `to` holds the bytes
  PeerMemory* peer_memory = nullptr;        ///< optional: chunks stand in such memory of the receiver's device
  Trace* trace = nullptr;                   ///< optional: gets a block
  std::int32_t from_rank = 0, to_rank = 0;  ///< for the block
  bool direct = false;  ///< of a CountedJob: both are of one context, so the receiver's queue copies
};

/// Copies whose sizes stand in a table of the receiver's.
struct CountedJob {
  CountedCopies<StagedJob> copies;               ///< their events are this job's
  std::shared_ptr<const Event> free;             ///< the table is there, and nobody needs what the copies overwrite
  std::vector<std::shared_ptr<UserEvent>> left;  ///< completed when all has been read
  std::shared_ptr<UserEvent> arrived;            ///< completed when all is there
};

/// Receives for one rank. Queues and pinned memory of its own, so that the rank's stream goes on meanwhile.
///
/// A copy that fails ends the group, and completes its events so that no queue hangs.
class StagedCopier {
 public:
  StagedCopier(StreamView to, GroupFate& fate);
  /// Ends after the jobs that were given. Stops the host.
  ~StagedCopier();
  StagedCopier(const StagedCopier&) = delete;
  StagedCopier& operator=(const StagedCopier&) = delete;

  /// Async. Jobs are done in order.
  void enqueue(std::variant<StagedJob, CountedJob> job);

  static constexpr std::uint64_t chunk_bytes = 8 << 20;
  static constexpr std::size_t slots = 4;

 private:
  /// What reads one sender's device, and where its chunks stand: in host memory or in memory of both devices.
  struct Source {
    Stream queue;
    std::unique_ptr<PinnedMemory> pinned;
    std::vector<Buffer> shared;  ///< as the receiver sees it, as the sender does
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
