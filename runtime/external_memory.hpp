#pragma once
// Memory of an NVIDIA device that kernels of the other devices use over NVLink or PCIe. libcuda, which NVIDIA's OpenCL
// driver has loaded itself, allocates it and exports it as a file descriptor. Each OpenCL context imports the
// descriptor (cl_khr_external_memory_opaque_fd). No CUDA context, no CUDA header and no CUDA library to link with is
// needed.
#include <moecl/buffer.hpp>
#include <moecl/device.hpp>

#include <memory>
#include <string>
#include <vector>

namespace moecl {

/// Threads: safe.
class ExternalMemory {
 public:
  /// Loads libcuda. Errors: unsupported  libcuda or one of its functions is missing, or a call failed
  explicit ExternalMemory(const char* library = "libcuda.so.1");
  ~ExternalMemory();
  ExternalMemory(const ExternalMemory&) = delete;
  ExternalMemory& operator=(const ExternalMemory&) = delete;

  /// Why, as the drivers say, kernels of `user` cannot use memory of `owner`; empty if they can.
  std::string reject(const Device& owner, const Device& user) const;
  /// Makes one allocation. Returns its buffer for the owner, then for each user. The last buffer frees the memory.
  /// Errors: invalid_argument  more than max_bytes; unsupported  the driver does not import it; out_of_memory
  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users, std::uint64_t size_bytes) const;

  /// The largest allocation: driver 580 crashes while it imports 512 MiB; 510 MiB work.
  static constexpr std::uint64_t max_bytes = std::uint64_t{480} << 20;

 private:
  struct Cuda;
  std::unique_ptr<const Cuda> cuda_;
};

/// The UUID by which libcuda and OpenCL identify the same device, as 32 hexadecimal digits.
/// Errors: unsupported  the device has none
std::string device_uuid(const Device& device);

}  // namespace moecl
