#pragma once
#include <moecl/dtype.hpp>
#include <moecl/host_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// A named tensor in host memory or in a file, contiguous and in row-major order.
struct HostTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  HostBytes data;
  std::uint64_t size_bytes = 0;

  std::int64_t elements() const noexcept;
  /// The same tensor with its bytes in memory, see HostBytes::in_memory.
  HostTensor in_memory() const { return {name, dtype, shape, data.in_memory(size_bytes), size_bytes}; }
  /// "model.norm.weight: bf16[2048]"
  std::string describe() const;
};

}  // namespace moecl
