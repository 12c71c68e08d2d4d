#pragma once
// A thread that brings rows to other processes and gets theirs.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/counted_copies.hpp"
#include "dispatch/meeting.hpp"
#include "dispatch/processes/link.hpp"

namespace moecl {

/// One exchange of rows with other processes. Every rank of it has such a job, in the same order.
struct RowsJob {
  /// A range of a piece that a peer shows, and where it goes.
  struct Fetch {
    std::int32_t peer;
    std::uint64_t piece, offset;
    HeldView to;
  };

  std::string what;
  std::vector<std::int32_t> peers;  ///< of the group, but this rank
  std::vector<HeldView> shown;      ///< what peers may ask for
  std::vector<Fetch> fetches;
  CountedCopies<Fetch> counted;        ///< optional: says the fetches
  std::shared_ptr<const Event> ready;  ///< `shown` holds its bytes
  std::shared_ptr<const Event> free;   ///< nobody needs what the fetches overwrite
  std::shared_ptr<UserEvent> done;     ///< completed when `shown` has been read and the fetches hold their bytes
  Trace* trace = nullptr;              ///< optional: gets a block
};

/// Asks each peer for what this rank fetches, and gives what it is asked for: device -> link -> device, in parts, so
/// that both sides work at once. A job that fails ends the group, and completes its events so that no queue hangs.
class Courier {
 public:
  Courier(StreamView stream, Link& link, GroupFate& fate);
  /// Ends after the jobs that were given. Stops the host.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Async. Jobs are done in order.
  void enqueue(RowsJob job);

 private:
  struct Moving;

  void work();
  void carry(RowsJob& job);
  void move(Moving& done);

  Link& link_;
  GroupFate& fate_;
  Stream reads_, writes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RowsJob> jobs_;
  bool closing_ = false;
  std::thread thread_;  ///< last: it uses everything above
};

}  // namespace moecl
