#pragma once
#include <moecl/parallel_layer.hpp>

#include <cstdint>
#include <memory>

namespace moecl {

/// How fast experts move.
struct MigrationOptions {
  /// The most bytes that a rank receives in one step, but at least one expert. 0: all moves in one step
  std::uint64_t bytes_per_step = 0;
};

/// How far a migration is.
struct MigrationProgress {
  std::int64_t moved = 0, moves = 0;  ///< experts sent in the steps started so far, and in all; over all ranks
  std::uint64_t bytes = 0;            ///< that this rank receives in the steps started so far
  bool committed = false;
};

/// Moves experts of a layer to other ranks while the layer's passes go on. Experts that arrive stay in memory of their
/// own until the commit. On all ranks, passes before the commit use the old experts at the old places, and passes after
/// it the new ones.
///
/// Every rank has an object of its own and calls the same functions between the same passes. A migration that is
/// abandoned or fails leaves the old table and weights in force.
/// Threads: those of the layer. Lifetime: the layer outlives this object. The destructor stops the host until the moves
/// that were started are complete.
class ExpertMigration {
 public:
  /// Plans the moves; nothing moves yet. Called by all ranks.
  /// @param target  The new table, with as many places as the layer has
  /// Errors: invalid_argument  another number of places, an expert that no rank has, or ranks disagree; unsupported
  ///         ranks hold parts of every expert, or CLBlast multiplies the experts; out_of_memory  no memory for the
  ///         arriving experts. Each error ends the group
  ExpertMigration(ParallelLayer& layer, const PlacementPlan& target, const MigrationOptions& options = {});
  ~ExpertMigration();
  ExpertMigration(ExpertMigration&&) noexcept;
  ExpertMigration& operator=(ExpertMigration&&) noexcept;

  /// Starts the next step's moves on a queue beside the rank's stream. @return  false: all moves have been started
  /// Async:  waits for the peers' host threads. Errors: deadline_exceeded  a peer failed or did not come
  bool step();
  /// Puts the new table in force for later passes. Async: the rank's stream waits for the arriving experts, and copies
  /// them to their places. Errors: invalid_argument  moves are left, or ranks disagree; as `step`. The old table stays
  void commit();
  MigrationProgress progress() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
