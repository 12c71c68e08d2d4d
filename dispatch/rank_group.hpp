#pragma once
// The state that the ranks of a group share.
#include <moecl/communicator.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "dispatch/meeting.hpp"
#include "dispatch/processes/courier.hpp"
#include "dispatch/processes/link.hpp"
#include "dispatch/processes/link_meeting.hpp"
#include "dispatch/processes/watch.hpp"
#include "dispatch/transports/staged_copy.hpp"
#include "dispatch/transports/transport.hpp"

namespace moecl {

/// Errors: invalid_argument  the deadline
void expect_possible(const GroupOptions& options);

/// A queue for the exchanges of a rank, with the resources they need.
struct Communicator::Lane {
  StreamView stream;
  Workspace scratch;  ///< for reductions
  Stream own;         ///< with `beside`: owns the queue of `stream`

  /// Copies from peers of other contexts. The first call makes its thread and queue. Threads: safe, since peers use it
  /// to put into this rank's windows
  StagedCopier& copier(GroupFate& fate) {
    std::call_once(once_, [&] { copier_ = std::make_unique<StagedCopier>(stream, fate); });
    return *copier_;
  }
  /// Ends the copier.
  void let_go() { copier_.reset(); }

 private:
  std::once_flag once_;
  std::unique_ptr<StagedCopier> copier_;
};

struct RankGroup::State {
  struct Rank {
    Communicator::Lane main;
    std::vector<std::atomic<std::uint64_t>> bytes_received;  ///< from each rank
    std::atomic<std::uint64_t> meetings{0};
    std::string phase;  ///< what its exchanges belong to: "dispatch by mc2"
    /// Key: members. The layers own the pools; a shared_ptr here would be a cycle, since a strategy has communicators,
    /// which hold the group.
    std::map<std::vector<std::int32_t>, std::weak_ptr<StepPool>> pools;
    /// Only for a rank of this process, if ranks are processes. Otherwise null
    std::unique_ptr<Link> link;
    std::unique_ptr<Courier> courier;
  };

  GroupOptions options;  ///< peer_memory is set
  GroupFate fate;
  std::vector<std::unique_ptr<Rank>> ranks;
  Transports transports;
  std::vector<TransportChoice> choices;  ///< [to][from]
  std::vector<std::int32_t> nodes;       ///< first rank on the node of each rank; empty: one node
  std::vector<std::int32_t> local;       ///< ranks of this process, in order
  std::unique_ptr<Watch> watch;          ///< if ranks are processes

  /// @param streams  of this process
  State(const GroupOptions& options, const std::vector<StreamView>& streams);
  ~State();
  /// A group over links, one for each of those streams. @param of  an earlier group of these ranks, whose transports
  /// are kept; null: there was none
  static std::shared_ptr<State> linked(Links links, const std::vector<StreamView>& streams, const GroupOptions& options,
                                       const State* of);
  /// Adds the ranks of all processes, without streams.
  void add_ranks(std::size_t size);
  /// Chooses the transport of each pair of ranks of this process.
  void choose_transports(std::optional<TransportKind> wanted);
  /// Called for each local rank: agrees with all other ranks about options, and probes.
  void begin(Communicator& ranks);
  /// Ends the group in this process; its links are not used any more.
  void let_go();
  bool is_local(std::int32_t rank) const { return std::binary_search(local.begin(), local.end(), rank); }
  /// The link of a rank of this process; null: all ranks are threads of this process
  Link* link() const { return rank(local.front()).link.get(); }
  std::vector<StreamView> local_streams() const;

  TransportChoice& choice(std::int32_t from, std::int32_t to) {
    return choices[static_cast<std::size_t>(to) * ranks.size() + static_cast<std::size_t>(from)];
  }
  const TransportChoice& choice(std::int32_t from, std::int32_t to) const {
    return choices[static_cast<std::size_t>(to) * ranks.size() + static_cast<std::size_t>(from)];
  }
  const Transport& transport(std::int32_t from, std::int32_t to) const {
    return *transports[static_cast<std::size_t>(choice(from, to).kind)];
  }
  Rank& rank(std::int32_t rank) const { return *ranks[static_cast<std::size_t>(rank)]; }
  /// The meeting place where `rank`, a rank of this process among `members`, meets the other members.
  MeetingPlace& meeting(const std::vector<std::int32_t>& members, std::int32_t rank);

 private:
  /// Meetings of one list of members: one among those of this process, and one of each of these with the others.
  struct Meetings {
    std::unique_ptr<Meeting> here;
    std::map<std::int32_t, std::unique_ptr<LinkMeeting>> apart;
  };
  std::mutex mutex_;
  std::map<std::vector<std::int32_t>, Meetings> meetings_;
};

}  // namespace moecl
