#pragma once
// Host memory that a device copies to and from at full speed.
#include <moecl/buffer.hpp>

namespace moecl {

/// Host memory that a device's kernels read and write in place, over the bus where there is one. Allocated with
/// CL_MEM_ALLOC_HOST_PTR; on NVIDIA with cl_nv_create_buffer.
/// Errors: invalid_argument  size above a device's largest allocation; out_of_memory
Buffer host_buffer(Context& context, std::uint64_t size_bytes);

/// Allocated by the driver (CL_MEM_ALLOC_HOST_PTR) and mapped for as long as it lives. Other contexts may use it as
/// plain host memory; on NVIDIA it is pinned for them too.
class PinnedMemory {
 public:
  /// Stops the host until the memory is mapped. Errors: out_of_memory, device_error
  PinnedMemory(StreamView stream, std::uint64_t size_bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  unsigned char* data() const noexcept { return data_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  Stream stream_;  ///< the caller's queue, retained: it unmaps the memory in the end
  Buffer buffer_;
  unsigned char* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace moecl
