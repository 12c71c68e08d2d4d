#pragma once
// How MC2 moves rows between windows. Either every rank fills slabs and the others pull them, or kernels store row by
// row into the windows of peers.
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

/// The tokens that a rank sends in one step, and the sizes of the step.
struct Mc2Tokens {
  WireRows x;                      ///< Shape: [T, H]
  WireRow row;                     ///< the format in which they travel
  TensorView ids, weights;         ///< Shape: [T, K]; weights optional: only if other ranks need them
  bool weighted = false;           ///< whether weights travel
  bool sums = false;               ///< whether sums come back, not rows: see CombineForm
  TensorView return_rows;          ///< out. Shape: [T * K]: rows of the results, see window_slots::TokenReturnRows
  std::vector<std::int64_t> each;  ///< tokens of every rank
  std::int64_t capacity = 0;       ///< tokens of a slab: at least the most of them
  TensorView fault;

  /// Rows that a token occupies in a slab on the way back.
  std::int64_t return_rows_each() const noexcept { return sums ? 1 : ids.shape[1]; }
};

/// What all ranks have sent to this rank: R slabs of `capacity` tokens, each filled from its start.
struct Mc2Received {
  WireRows rows;            ///< Shape: [R * capacity, H]
  TensorView ids, weights;  ///< Shape: [R * capacity, K]; ids -1 where no token is; weights as given
};

/// One way to move rows. `dispatch` and `combine` begin on the rank's stream and continue on the queue of its exchanges
/// (fork). Their results are there after `join`.
class Mc2Windows {
 public:
  virtual ~Mc2Windows() = default;
  virtual Mc2Received dispatch(const Mc2Tokens& tokens) = 0;
  /// @param rows  results of this rank's experts for `received`, which `tokens` brought here. Shape: [rows, H] f32;
  /// from experts that sum [R * capacity, H] f32
  /// @param in_order  the sort of the received slots that set the order of `rows`
  /// @return  Shape: [R * capacity * return_rows_each, H]: every rank's results for this rank's tokens, a slab each
  virtual WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                           const expert_sort::Args& in_order) = 0;
  /// Memory of a step with such tokens. @param rows  the most rows there can be for this rank's experts
  virtual StepBytes bytes(const Mc2Tokens& tokens, std::int64_t rows) const = 0;
  /// Bytes of the windows.
  virtual std::uint64_t workspace_bytes() const noexcept = 0;
};

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

/// Whether all tokens of such a step fit the windows of `put_windows`; the same on all ranks.
bool put_windows_fit(const ExpertRank& rank, const ExpertProblem& problem, const Mc2Tokens& tokens);
/// Only rows that a rank needs travel. The counters of received bytes count all rows, since only the devices know which
/// ones came.
std::unique_ptr<Mc2Windows> put_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

}  // namespace moecl
