#pragma once
// How MC2's rows get from window to window: as slabs that every rank fills and the others pull, or row by row into
// windows that kernels reach.
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

/// A rank's tokens as they leave.
struct Mc2Tokens {
  WireRows x;                      ///< Shape: [T, H]
  WireRow row;                     ///< as what they travel
  TensorView ids, weights;         ///< Shape: [T, K]; weights optional: those that other ranks need
  bool weighted = false;           ///< weights travel
  bool sums = false;               ///< come back, not rows: see CombineForm
  TensorView return_rows;          ///< out. Shape: [T * K]: where it will, see window_slots::TokenReturnRows
  std::vector<std::int64_t> each;  ///< tokens of every rank
  std::int64_t capacity = 0;       ///< the most of them: tokens of a slab
  TensorView fault;

  /// Places that a token takes on the way back.
  std::int64_t return_rows_each() const noexcept { return sums ? 1 : ids.shape[1]; }
};

/// What every rank has sent here: R slabs of `capacity` tokens, each filled from the front.
struct Mc2Received {
  WireRows rows;            ///< Shape: [R * capacity, H]
  TensorView ids, weights;  ///< Shape: [R * capacity, K]; -1 where no token is. Weights as they were given
};

/// Both begin on the rank's stream and go on in its exchanges (fork); what they give is there after `join`.
class Mc2Windows {
 public:
  virtual ~Mc2Windows() = default;
  virtual Mc2Received dispatch(const Mc2Tokens& tokens) = 0;
  /// @param rows  of this rank's experts for `received`, which `tokens` brought here. Shape: [rows, H] f32, of experts
  /// who sum [R * capacity, H] f32
  /// @param in_order  the sort of the received slots that gave their order
  /// @return  Shape: [R * capacity * return_rows_each, H]: what every rank has for this rank's tokens, a slab each
  virtual WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                           const expert_sort::Args& in_order) = 0;
  /// Of a step of such tokens. @param rows  for this rank's experts, the most there can be
  virtual StepBytes bytes(const Mc2Tokens& tokens, std::int64_t rows) const = 0;
  /// Of windows.
  virtual std::uint64_t workspace_bytes() const noexcept = 0;
};

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

/// Whether all tokens of such a step fit windows of `put_windows`; the same on all ranks.
bool put_windows_fit(const ExpertRank& rank, const ExpertProblem& problem, const Mc2Tokens& tokens);
/// Only rows that somebody needs travel. The counters of received bytes are told of all: what came is known to the
/// devices alone.
std::unique_ptr<Mc2Windows> put_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

}  // namespace moecl
