#pragma once
// Options for how the ranks of a layer work together, for `run`, `verify` and `bench`.
#include <moecl/communicator.hpp>
#include <moecl/parallel_layer.hpp>

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "tools/launch.hpp"

namespace moecl::cli {

struct RankOptions {
  int ranks = 1, tp = 1;
  std::optional<int> dp;  ///< default: ranks / tp
  bool expert_parallel = false;
  std::string strategy = "auto", rules = "a3", wire = "none";
  std::vector<int> topology;               ///< ranks of each node; empty: one node
  std::optional<TransportKind> transport;  ///< between ranks; unset: probed
  Launch launch;

  void add_to(CLI::App& command);
  int dp_size() const { return dp.value_or(ranks / tp); }
  /// Whether there is one rank and no group. A strategy that was asked for runs in a group of one.
  bool alone() const { return ranks == 1 && strategy == "auto" && !launch.is_one_of_many(); }
  /// With one rank, that rank has all of every expert.
  ExpertSharding sharding() const {
    return expert_parallel || ranks == 1 ? ExpertSharding::experts : ExpertSharding::intermediate;
  }
  int ranks_per_node() const { return topology.empty() ? ranks : topology.front(); }
  /// Strategy, rules and wire.
  ParallelPlan plan() const;
  /// The group of all ranks; `streams` are those of this process's ranks. Errors: as RankGroup
  RankGroup group(const std::vector<StreamView>& streams) const;
  /// Errors: invalid_argument  options that contradict each other
  void check() const;
};

}  // namespace moecl::cli
