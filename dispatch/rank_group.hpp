#pragma once
// What the ranks of a group share.
#include <moecl/communicator.hpp>

#include <atomic>
#include <map>
#include <mutex>

#include "dispatch/meeting.hpp"
#include "dispatch/processes/courier.hpp"
#include "dispatch/processes/link.hpp"
#include "dispatch/processes/watch.hpp"
#include "dispatch/transports/staged_copy.hpp"
#include "dispatch/transports/transport.hpp"

namespace moecl {

/// Errors: invalid_argument  the deadline
void expect_possible(const GroupOptions& options);

/// Where exchanges of a rank are enqueued, with what they need there.
struct Communicator::Lane {
  StreamView stream;
  Workspace scratch;                     ///< of reductions
  std::unique_ptr<StagedCopier> copier;  ///< where some peer is of another context
  Stream own;                            ///< `beside`: the queue of `stream`
};

struct RankGroup::State {
  struct Rank {
    Communicator::Lane main;
    std::vector<std::atomic<std::uint64_t>> bytes_received;  ///< from each rank
    std::atomic<std::uint64_t> meetings{0};
    std::string phase;  ///< what its exchanges are parts of: "the dispatch by mc2"
    /// By members; of layers, who keep them: a strategy has communicators, which have the group.
    std::map<std::vector<std::int32_t>, std::weak_ptr<StepPool>> pools;
  };

  GroupOptions options;  ///< peer_memory is set
  GroupFate fate;
  std::vector<std::unique_ptr<Rank>> ranks;
  Transports transports;
  std::vector<TransportChoice> choices;  ///< [to][from]
  /// Where ranks are processes: one of them is here. Else null
  std::unique_ptr<Link> link;
  std::unique_ptr<Courier> courier;
  std::unique_ptr<Watch> watch;

  ~State();
  /// Over `link`. @param of  the ranks before, whose pairs stay as they are; null: there were none
  static std::shared_ptr<State> linked(std::unique_ptr<Link> link, StreamView stream, const GroupOptions& options,
                                       const State* of);
  /// Nobody uses the link any more, since the group has ended.
  std::unique_ptr<Link> let_go();
  /// Ranks that are of this process.
  std::vector<std::int32_t> local() const;

  const TransportChoice& choice(std::int32_t from, std::int32_t to) const {
    return choices[static_cast<std::size_t>(to) * ranks.size() + static_cast<std::size_t>(from)];
  }
  const Transport& transport(std::int32_t from, std::int32_t to) const {
    return *transports[static_cast<std::size_t>(choice(from, to).kind)];
  }
  Rank& rank(std::int32_t rank) const { return *ranks[static_cast<std::size_t>(rank)]; }
  /// The one meeting place of those members.
  MeetingPlace& meeting(const std::vector<std::int32_t>& members);

 private:
  std::mutex mutex_;
  std::map<std::vector<std::int32_t>, std::unique_ptr<MeetingPlace>> meetings_;
};

}  // namespace moecl
