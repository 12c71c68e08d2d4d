#pragma once
#include <moecl/parallel_layer.hpp>

#include <cstdint>
#include <memory>

namespace moecl {

/// How fast experts move.
struct MigrationOptions {
  /// What a rank gets in a step at most, but one expert at least. 0: all at once
  std::uint64_t bytes_per_step = 0;
};

/// How far experts are on their way.
struct MigrationProgress {
  std::int64_t moved = 0, moves = 0;  ///< experts between ranks, of all ranks
  std::uint64_t bytes = 0;            ///< that this rank has got
  bool committed = false;
};

/// Experts of a layer on their way to other ranks, beside its passes. What comes stands in memory of its own until the
/// commit: passes before it have the old experts at the old places, and those after it the new ones, on all ranks.
///
/// Every rank has an object of its own and calls the same functions between the same passes. A migration that is given
/// up, or that fails, leaves the old table and weights.
/// Threads: those of the layer. Lifetime: the layer outlives it; its end stops the host until what was started has
/// come.
class ExpertMigration {
 public:
  /// Nothing moves yet. By all ranks.
  /// @param target  as many places as the layer has
  /// Errors: invalid_argument  another number of places, an expert that no rank has, or ranks disagree; unsupported
  ///         parts of every expert, or CLBlast's; out_of_memory  for what comes. Each ends the group
  ExpertMigration(ParallelLayer& layer, const PlacementPlan& target, const MigrationOptions& options = {});
  ~ExpertMigration();
  ExpertMigration(ExpertMigration&&) noexcept;
  ExpertMigration& operator=(ExpertMigration&&) noexcept;

  /// Starts the next moves on a queue beside the rank's stream. @return  false: all are under way
  /// Async:  host threads meet. Errors: deadline_exceeded  a peer failed or did not come
  bool step();
  /// Passes from here on have the new table. Async: the rank's stream waits for what comes, and copies it to its places
  /// Errors: invalid_argument  moves are left, or ranks disagree; as `step`. The old table stays
  void commit();
  MigrationProgress progress() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
