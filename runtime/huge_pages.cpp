#include "runtime/huge_pages.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>

namespace moecl {

#ifdef __linux__
namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t least_bytes = 8 << 20;

/// Gives the advice for the whole pages of [data, data + size_bytes).
void advise(char* data, std::uint64_t size_bytes) {
  const std::uint64_t before = (page_bytes - reinterpret_cast<std::uintptr_t>(data) % page_bytes) % page_bytes;
  madvise(data + before, (size_bytes - before) / page_bytes * page_bytes, MADV_HUGEPAGE);
}

}  // namespace

void advise_huge_pages(const Context& context, _cl_mem* buffer, std::uint64_t size_bytes) {
  const std::vector<Device>& devices = context.devices();
  const bool on_cpu = std::all_of(devices.begin(), devices.end(),
                                  [](const Device& device) { return device.caps.type == DeviceType::cpu; });
  if (!on_cpu || size_bytes < least_bytes) return;
  // Only a queue can tell a buffer's address, by mapping the buffer.
  cl_command_queue queue = clCreateCommandQueue(context.handle(), devices.front().handle, 0, nullptr);
  if (queue == nullptr) return;
  void* const data = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, size_bytes, 0,
                                        nullptr, nullptr, nullptr);
  if (data != nullptr) {
    advise(static_cast<char*>(data), size_bytes);
    clEnqueueUnmapMemObject(queue, buffer, data, 0, nullptr, nullptr);
    clFinish(queue);
  }
  clReleaseCommandQueue(queue);
}
#else
void advise_huge_pages(const Context&, _cl_mem*, std::uint64_t) {}
#endif

}  // namespace moecl
