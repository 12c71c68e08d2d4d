#pragma once
// Device memory that the steps of one rank use in turn.
#include <moecl/workspace.hpp>

#include <deque>

namespace moecl {

/// A step takes ranges one by one and owns them until the next step begins, whatever its layer and strategy. The ranges
/// are in memory of the caller, or in kept buffers. Then the n-th range of every step is in one buffer, as large as the
/// largest n-th range so far.
///
/// Threads: one thread at a time. Lifetime: as Workspace
class StepMemory {
 public:
  /// @param given  optional: memory of the caller for the ranges of this step
  void begin(BufferView given = {});
  /// The next range. Errors: invalid_argument  the caller's memory is too small; out_of_memory
  BufferView take(Context& context, std::uint64_t size_bytes);
  /// Memory apart from the ranges, for what a rank shows to its peers last in a step: see Shown::until_next.
  BufferView lasting(Context& context, std::uint64_t size_bytes) { return lasting_.reserve(context, size_bytes); }
  /// Bytes of the kept buffers.
  std::uint64_t capacity_bytes() const noexcept;

 private:
  std::deque<Workspace> kept_;  ///< [most ranges of any step]
  Workspace lasting_;
  std::size_t next_ = 0;
  BufferView given_;
  std::uint64_t used_bytes_ = 0;  ///< of `given_`
};

}  // namespace moecl
