#pragma once
// How MC2's rows get from window to window: as slabs that every rank fills and the others pull, or row by row into
// windows that kernels reach.
#include "dispatch/strategy_parts.hpp"

namespace moecl {

/// A rank's tokens in the order in which they leave.
struct Mc2Tokens {
  WireRows x;                 ///< Shape: [T, H]
  WireRow row;                ///< as what they travel
  SortedSlots sorted;         ///< their slots by global expert
  std::int64_t capacity = 0;  ///< rows that one rank can have for another, at most
  TensorView fault;
};

/// What every rank has sent here: R slabs of `capacity` rows, each filled from the front.
struct Mc2Received {
  WireRows rows;    ///< Shape: [R * capacity, H]
  TensorView ends;  ///< Shape: [R, E] i32: every rank's row ends
};

/// Both begin on the rank's stream and go on in its exchanges (fork); what they give is there after `join`.
class Mc2Windows {
 public:
  virtual ~Mc2Windows() = default;
  virtual Mc2Received dispatch(const Mc2Tokens& tokens) = 0;
  /// @param rows  of the experts, in the order of a sort of what the dispatch gave
  /// @param in_order  that sort. @return  Shape: [R * capacity, H]: rows where the dispatch of this rank had put them
  virtual WireRows combine(TensorView rows, const SortedSlots& in_order) = 0;
  virtual std::uint64_t workspace_bytes() const noexcept = 0;
};

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem);

/// Whether all rows of such a step fit windows of `put_windows`; the same on all ranks.
bool put_windows_fit(const ExpertRank& rank, const ExpertProblem& problem, const WireRow& row, std::int64_t capacity);
/// Only rows that exist travel. The counters of received bytes are told of whole slabs: what came is known to the
/// devices alone.
std::unique_ptr<Mc2Windows> put_windows(const ExpertRank& rank, const ExpertProblem& problem);

}  // namespace moecl
