#pragma once
#include <string>

namespace simulated_gpu {

struct Compiled {
  std::string ptx;  ///< empty if the source did not compile
  std::string log;
};
/// Compiles OpenCL C, as NVIDIA's driver accepts it, with clang.
Compiled compile(const std::string& source, const std::string& options);

}  // namespace simulated_gpu
