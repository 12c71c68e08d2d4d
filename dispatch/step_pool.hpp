#pragma once
// What the layers of one rank share, so that a model of many layers needs the exchange memory of one.
#include <moecl/strategy.hpp>

#include <array>
#include <list>
#include <memory>
#include <string>

#include "dispatch/step_memory.hpp"

namespace moecl {

/// Strategies with their windows, queues for exchanges beside the rank's stream, and the memory of steps. Each
/// micro-batch in flight has a lane of its own. Batches of one lane, of any layers, run one after the other.
///
/// Threads: that of the rank. Lifetime: its commands are done before the last layer releases it
class StepPool {
 public:
  static constexpr std::size_t lanes = 2;  ///< two micro-batches
  /// The pool of this rank in a communicator of `ranks`. Makes a new one if no layer holds one any more.
  static std::shared_ptr<StepPool> of(const Communicator& ranks);

  StepMemory& memory(std::size_t lane) { return lanes_[lane].memory; }
  /// The lane's strategy for layers of such a problem; made for the first of them.
  /// @param beside  exchanges run on the lane's own queue
  /// Errors: as Strategy::expect_possible
  Strategy& strategy(std::size_t lane, StrategyKind kind, const ExpertRank& rank, bool beside,
                     const ExpertProblem& problem);
  /// Device memory held by steps and by windows.
  std::uint64_t capacity_bytes() const noexcept;

 private:
  struct Made {
    std::string of;  ///< key: everything that it was made from
    std::unique_ptr<Strategy> strategy;
  };
  struct Lane {
    StepMemory memory;
    std::list<std::pair<std::string, ExpertRank>> beside;  ///< one queue for each grid of ranks
    std::list<Made> strategies;
  };
  std::array<Lane, lanes> lanes_;
};

}  // namespace moecl
