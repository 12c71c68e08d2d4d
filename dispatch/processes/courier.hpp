#pragma once
// A thread that exchanges rows with other processes.
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

/// One exchange of rows with other processes. Every rank that takes part has such a job; jobs have the same order on
/// all ranks.
struct RowsJob {
  /// A range of a piece that a peer shows, and its destination.
  struct Fetch {
    std::int32_t peer;
    std::uint64_t piece, offset;
    HeldView to;
  };

  std::string what;
  std::vector<std::int32_t> peers;  ///< ranks of the group, without this one
  std::vector<HeldView> shown;      ///< pieces that peers may read
  std::vector<Fetch> fetches;
  CountedCopies<Fetch> counted;        ///< optional: computes the fetches
  std::shared_ptr<const Event> ready;  ///< completes when `shown` holds its bytes
  std::shared_ptr<const Event> free;   ///< completes when the fetches may overwrite their targets
  std::shared_ptr<UserEvent> done;     ///< completed when `shown` has been read and the fetches hold their bytes
  Trace* trace = nullptr;              ///< optional: records the exchange
};

/// Requests from each peer the ranges that this rank fetches, and sends the ranges that peers request: device -> link
/// -> device, in parts, so that both sides work at once. A job that fails ends the group, and completes its events so
/// that no queue hangs.
class Courier {
 public:
  Courier(StreamView stream, Link& link, GroupFate& fate);
  /// Finishes all jobs that were enqueued. Stops the host.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Async. Jobs run in order.
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
