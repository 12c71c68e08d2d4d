#pragma once
#include <moecl/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// A named tensor in host memory, contiguous and in row-major order; owns no bytes.
///
/// `data` of a tensor in a file may be unaligned for its dtype (the safetensors format promises no alignment): copy
/// bytes out of it, do not cast the pointer.
struct HostTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;

  std::int64_t elements() const noexcept;
  /// "model.norm.weight: bf16[2048]"
  std::string describe() const;
};

}  // namespace moecl
