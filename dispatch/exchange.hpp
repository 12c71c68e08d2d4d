#pragma once
// How the members of a communicator come together: host threads meet, then everybody copies what it needs.
#include <moecl/communicator.hpp>

#include <span>

#include "dispatch/rank_group.hpp"
#include "dispatch/share.hpp"
#include "dispatch/stream_events.hpp"
#include "runtime/check.hpp"

namespace moecl {

/// How long the memory that a rank shows to its peers stays unchanged.
enum class Shown : std::uint8_t {
  until_read,  ///< later commands of its queue run after the peers' copies, which a second meeting reports
  until_next   ///< until this queue's next exchange with those peers: a peer that comes there has read. One meeting
};

/// One collective: every rank shows some memory, and copies what it needs from the memory of the others.
struct Communicator::Exchange {
  struct Pull {
    std::int32_t peer;
    std::uint64_t from_offset;
    BufferView to;
    std::size_t piece = 0;  ///< index among the pieces that the peer shows
  };
  using Notes = std::vector<MeetingNote>;
  /// Copies whose sizes stand in a table on the device. Lifetime: another thread calls `pulls_of`, so it must own what
  /// it uses
  struct Counted {
    BufferView table;  ///< on this rank's device, written by earlier commands of its queue
    std::vector<BufferView> into;
    std::function<std::vector<Pull>(const std::vector<std::int32_t>& table)> pulls_of;
  };

  const Communicator& self;
  RankGroup::State& group;
  RankGroup::State::Rank& me;
  Lane& lane;  ///< the queue of this rank's exchanges

  explicit Exchange(const Communicator& of)
      : self(of), group(*of.group_), me(group.rank(of.members_[static_cast<std::size_t>(of.rank_)])), lane(of.lane()) {}

  const Transport& transport(std::int32_t from, std::int32_t to) const {
    return group.transport(self.members_[static_cast<std::size_t>(from)], self.members_[static_cast<std::size_t>(to)]);
  }
  bool shares_events(std::int32_t from, std::int32_t to) const { return transport(from, to).shares_events(); }
  /// Whether that member is in another process.
  bool is_apart(std::int32_t peer) const { return transport(peer, self.rank_).between_processes(); }

  /// Whether any other member is in this process.
  bool any_near() const {
    for (std::int32_t peer = 0; peer < self.size(); ++peer)
      if (peer != self.rank_ && !is_apart(peer)) return true;
    return false;
  }
  MeetingPlace& meeting() const { return group.meeting(self.members_, group_rank(self.rank_)); }

  /// Errors: deadline_exceeded; invalid_argument  the members are in different calls, or do not agree
  std::shared_ptr<const Notes> meet(MeetingNote note) const;
  /// The same among the members of this process.
  std::shared_ptr<const Notes> meet_near(MeetingNote note) const;

  /// @param pulls_of  Called with the notes of all members; returns what this rank copies
  template <class PullsOf>
  void run(const char* what, std::vector<HeldView> shown, Shown stays, std::vector<Agreed> agreed,
           std::vector<std::uint64_t> numbers, PullsOf pulls_of) {
    show(what, std::move(shown), stays, std::move(agreed), std::move(numbers),
         [&](const std::shared_ptr<const Notes>& notes, const std::shared_ptr<const Event>& free) {
           copy(*notes, pulls_of(*notes), free);
         });
  }
  /// The same, if a table on this rank's device says what to copy: this rank's copy thread reads the table once it is
  /// written. Later commands of this rank's queue may overwrite what is shown.
  void run_counted(const char* what, std::vector<HeldView> shown, std::vector<Agreed> agreed, Counted counted);

  /// @param move  Called with the notes of all members and the event after which this rank's memory may be overwritten;
  ///              it makes the copies
  template <class Move>
  void show(const char* what, std::vector<HeldView> shown, Shown stays, std::vector<Agreed> agreed,
            std::vector<std::uint64_t> numbers, Move move) {
    group.fate.expect_whole();
    MeetingNote note{what, std::move(agreed), std::move(numbers), std::move(shown), recorded(lane.stream), {}, {}};
    const std::shared_ptr<const Event> free = note.ready;
    // Later commands of this stream may overwrite what peers of other contexts read, so the stream waits for those
    // peers.
    std::vector<std::int32_t> readers;
    for (std::int32_t peer = 0; peer < self.size(); ++peer)
      if (!shares_events(self.rank_, peer) && !is_apart(peer)) readers.push_back(peer);
    if (!readers.empty()) {
      note.left.resize(self.members_.size());
      auto leaving = group.fate.awaited_events(lane.stream, readers.size());
      for (std::size_t i = 0; i < readers.size(); ++i)
        note.left[static_cast<std::size_t>(readers[i])] = std::move(leaving[i]);
    }
    const auto notes = meet(std::move(note));
    if (stays == Shown::until_next) await_members(*notes);  // they have read what was shown before
    move(notes, free);
    if (stays == Shown::until_next || !any_near()) return;  // for other processes `carry` waits
    MeetingNote done{what, {}, {}, {}, recorded(lane.stream), {}, {}};
    await_members(*meet_near(std::move(done)));
  }

  /// One part of the rows that travel, and its memory.
  struct Piece {
    BufferView send, recv;
    std::uint64_t row_bytes;
  };
  /// All-gather: the sends of all members, rows[r] rows of member r, one after the other.
  void gather(const std::vector<Piece>& pieces, std::span<const std::int64_t> rows, Shown stays);
  /// Runs of rows, one for each rank.
  struct Runs {
    std::vector<std::int64_t> first, rows;

    void clear() { first.clear(), rows.clear(); }
    void add(std::int64_t first_row, std::int64_t count) { first.push_back(first_row), rows.push_back(count); }
  };
  /// Run r of `sends` goes to rank r; what rank r sends here goes to run r of `receives`.
  void all_to_all(const std::vector<Piece>& pieces, const Runs& sends, const Runs& receives, Shown stays);
  /// As Communicator::reduce_scatter.
  void reduce_scatter(TensorView data, TensorView out, std::span<const std::int64_t> rows, Shown stays);
  /// data = the sum over ranks. @param share  [rows of this rank's share, H]: memory for this rank's sums, which peers
  /// read last: those rows of `data`; with until_next, memory apart from `data`
  void all_reduce(TensorView data, TensorView share, Shown stays);
  /// The rows that rank r sums in all_reduce.
  static Share summed_by(const TensorView& data, std::int32_t ranks, std::int32_t rank) {
    return share_of(data.shape[0], ranks, rank);
  }

  /// Exchanges rows with other processes. This rank's queue waits until they have read its rows, and until theirs are
  /// here. All members call it. @param fetches  what this rank reads from other processes
  void carry(const Notes& notes, std::vector<RowsJob::Fetch> fetches, std::shared_ptr<const Event> free,
             CountedCopies<RowsJob::Fetch> counted = {}) const;
  /// @param free  Completes when this rank's memory may be overwritten.
  void copy(const Notes& notes, const std::vector<Pull>& pulls, const std::shared_ptr<const Event>& free);

  void count_received(std::int32_t from, std::uint64_t bytes) const {
    me.bytes_received[static_cast<std::size_t>(self.members_[static_cast<std::size_t>(from)])] += bytes;
  }

  /// This rank's queue waits for all that its peers of this context had enqueued when they came to the meeting.
  void await_members(const Notes& notes) const;

  /// Later exchanges of this rank wait for an event of a peer's context.
  void await(std::int32_t peer, std::shared_ptr<const Event> ready) const;

  void copy_counted(const std::shared_ptr<const Notes>& notes, Counted counted,
                    const std::shared_ptr<const Event>& free);

  /// A job for the copier of `to`.
  StagedJob staged_job(std::int32_t from, BufferView source, std::int32_t to, BufferView target) const;

  RankGroup::State::Rank& rank(std::int32_t member) const {
    return group.rank(self.members_[static_cast<std::size_t>(member)]);
  }
  std::int32_t group_rank(std::int32_t member) const { return self.members_[static_cast<std::size_t>(member)]; }
  StreamView stream_of(std::int32_t peer) const { return rank(peer).main.stream; }
};

}  // namespace moecl
