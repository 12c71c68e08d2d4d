#pragma once
// Detects stops of the host independently of the library: the test program defines OpenCL's blocking functions itself,
// so calls from anywhere in the process (libmoecl, CLBlast, the test) pass through it on their way to the ICD loader.
#include <cstddef>
#include <string>
#include <vector>

namespace moecl::test {

/// Records the OpenCL calls since construction, by any thread, that stop the host or let it spin: clFinish,
/// clWaitForEvents, blocking reads, writes and maps, builds of programs, and queries of an event's status.
class BlockingCalls {
 public:
  BlockingCalls();
  /// "clFinish", "clEnqueueReadBuffer", ... in the order of the calls.
  std::vector<std::string> names() const;

 private:
  std::size_t first_;
};

}  // namespace moecl::test
