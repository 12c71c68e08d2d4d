#pragma once
// Memory of an NVIDIA device that kernels of the others use over NVLink or PCIe: allocated by libcuda, which NVIDIA's
// OpenCL driver itself has loaded, exported as a file descriptor, and imported into each OpenCL context
// (cl_khr_external_memory_opaque_fd). No CUDA context, no CUDA header, nothing of CUDA to link with.
#include <moecl/buffer.hpp>
#include <moecl/device.hpp>

#include <memory>
#include <string>
#include <vector>

namespace moecl {

/// Threads: safe.
class ExternalMemory {
 public:
  /// Loads libcuda. Errors: unsupported  what of it is missing or failed
  explicit ExternalMemory(const char* library = "libcuda.so.1");
  ~ExternalMemory();
  ExternalMemory(const ExternalMemory&) = delete;
  ExternalMemory& operator=(const ExternalMemory&) = delete;

  /// Why the drivers say that kernels of `user` cannot use memory of `owner`; empty otherwise.
  std::string reject(const Device& owner, const Device& user) const;
  /// One allocation, as the owner and then each of `users` sees it. The memory goes with the last of the buffers.
  /// Errors: invalid_argument  more than max_bytes; unsupported  the driver does not import it; out_of_memory
  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users, std::uint64_t size_bytes) const;

  /// The largest that is asked for: driver 580 crashes while it imports 512 MiB, 510 work.
  static constexpr std::uint64_t max_bytes = std::uint64_t{480} << 20;

 private:
  struct Cuda;
  std::unique_ptr<const Cuda> cuda_;
};

/// The universally unique id by which libcuda and OpenCL name the same device, as 32 hexadecimal digits.
/// Errors: unsupported  the device has none
std::string device_uuid(const Device& device);

}  // namespace moecl
