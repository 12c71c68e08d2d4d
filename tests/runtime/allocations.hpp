#pragma once
// Counts allocations independently of the library: the test program defines operator new itself, so calls from anywhere
// in the process pass through it.
#include <cstdint>

namespace moecl::test {

/// Counts this thread's calls of operator new since construction. In a build with a sanitizer, which brings its own
/// operator new, the count stays 0.
class Allocations {
 public:
  Allocations() : first_(so_far()) {}
  std::uint64_t count() const { return so_far() - first_; }

 private:
  static std::uint64_t so_far();
  std::uint64_t first_;
};

/// While it lives, makes one call of operator new by this thread fail.
class FailingAllocation {
 public:
  /// @param nth  the call that fails, counted from 1, from now on
  explicit FailingAllocation(std::uint64_t nth);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  /// Whether the nth call was made, and so failed.
  bool failed() const;
  /// False in a build with a sanitizer.
  static bool is_possible();
};

}  // namespace moecl::test
