#pragma once
// What the ranks of a group share.
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

/// Where exchanges of a rank are enqueued, with what they need there.
struct Communicator::Lane {
  StreamView stream;
  Workspace scratch;  ///< of reductions
  Stream own;         ///< `beside`: the queue of `stream`

  /// Brings what peers of other contexts have; a thread and a queue since it was first asked for. Threads: safe, since
  /// peers put into this rank's windows through it
  StagedCopier& copier(GroupFate& fate) {
    std::call_once(once_, [&] { copier_ = std::make_unique<StagedCopier>(stream, fate); });
    return *copier_;
  }
  /// Nothing is brought any more.
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
    std::string phase;  ///< what its exchanges are parts of: "the dispatch by mc2"
    /// By members; of layers, who keep them: a strategy has communicators, which have the group.
    std::map<std::vector<std::int32_t>, std::weak_ptr<StepPool>> pools;
    /// Where ranks are processes, of one that is here. Else null
    std::unique_ptr<Link> link;
    std::unique_ptr<Courier> courier;
  };

  GroupOptions options;  ///< peer_memory is set
  GroupFate fate;
  std::vector<std::unique_ptr<Rank>> ranks;
  Transports transports;
  std::vector<TransportChoice> choices;  ///< [to][from]
  std::vector<std::int32_t> nodes;       ///< the first rank on the node of each; empty: all are on one
  std::vector<std::int32_t> local;       ///< ranks of this process, in order
  std::unique_ptr<Watch> watch;          ///< where ranks are processes

  /// @param streams  of this process
  State(const GroupOptions& options, const std::vector<StreamView>& streams);
  ~State();
  /// Over links, one for each of those streams. @param of  a group with these ranks, whose pairs stay as they are;
  /// null: there was none
  static std::shared_ptr<State> linked(Links links, const std::vector<StreamView>& streams, const GroupOptions& options,
                                       const State* of);
  /// Of all processes, without streams.
  void add_ranks(std::size_t size);
  /// Between ranks of this process.
  void choose_transports(std::optional<TransportKind> wanted);
  /// With all other ranks, by a rank that is here: agrees about options, and probes.
  void begin(Communicator& ranks);
  /// The group ends here, and its links are used no more.
  void let_go();
  bool is_local(std::int32_t rank) const { return std::binary_search(local.begin(), local.end(), rank); }
  /// Of a rank that is here; null: all are threads of this process
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
  /// Where that one of those members, a rank of this process, meets the others.
  MeetingPlace& meeting(const std::vector<std::int32_t>& members, std::int32_t rank);

 private:
  /// Of the same members: of those that are here, and of each of them with the others.
  struct Meetings {
    std::unique_ptr<Meeting> here;
    std::map<std::int32_t, std::unique_ptr<LinkMeeting>> apart;
  };
  std::mutex mutex_;
  std::map<std::vector<std::int32_t>, Meetings> meetings_;
};

}  // namespace moecl
