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

}  // namespace moecl::test
