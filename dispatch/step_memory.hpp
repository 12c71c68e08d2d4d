#pragma once
// Device memory that the steps of one rank take turns in.
#include <moecl/workspace.hpp>

#include <deque>

namespace moecl {

/// A step takes one range after the other and has them until the next step begins, whichever layer and strategy that is
/// of. They are the caller's, or kept: then the n-th range of every step is in one buffer, of the size of the largest.
///
/// Threads: one thread at a time. Lifetime: as Workspace
class StepMemory {
 public:
  /// @param given  optional: memory of the caller for the ranges of this step
  void begin(BufferView given = {});
  /// The next range. Errors: invalid_argument  the caller's memory ends before it does; out_of_memory
  BufferView take(Context& context, std::uint64_t size_bytes);
  /// Memory apart from the ranges, for what a rank shows to its peers last in a step: see Shown::until_next.
  BufferView lasting(Context& context, std::uint64_t size_bytes) { return lasting_.reserve(context, size_bytes); }
  /// What is kept.
  std::uint64_t capacity_bytes() const noexcept;

 private:
  std::deque<Workspace> kept_;  ///< [ranges of the step that took most]
  Workspace lasting_;
  std::size_t next_ = 0;
  BufferView given_;
  std::uint64_t used_bytes_ = 0;  ///< of `given_`
};

}  // namespace moecl
