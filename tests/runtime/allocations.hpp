#pragma once
// An independent witness of allocations: the test program has an operator new of its own, through which calls from
// anywhere in the process pass.
#include <cstdint>

namespace moecl::test {

/// The calls of operator new by this thread since construction. In a build with a sanitizer, which brings its own
/// operator new, there are none.
class Allocations {
 public:
  Allocations() : first_(so_far()) {}
  std::uint64_t count() const { return so_far() - first_; }

 private:
  static std::uint64_t so_far();
  std::uint64_t first_;
};

/// Makes one call of operator new by this thread fail, while it lives.
class FailingAllocation {
 public:
  /// @param nth  from now on, from 1
  explicit FailingAllocation(std::uint64_t nth);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  /// Whether there were so many.
  bool failed() const;
  /// Not in a build with a sanitizer.
  static bool is_possible();
};

}  // namespace moecl::test
