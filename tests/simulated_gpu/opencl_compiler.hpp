#pragma once
#include <string>

namespace simulated_gpu {

struct Compiled {
  std::string ptx;  ///< empty when it did not compile
  std::string log;
};
/// OpenCL C as NVIDIA's driver takes it, by clang.
Compiled compile(const std::string& source, const std::string& options);

}  // namespace simulated_gpu
