#include "runtime/host_address.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {
namespace {

/// Addresses of living buffers. Never destroyed: a driver may release buffers at the very end.
struct Addresses {
  std::mutex mutex;
  std::unordered_map<cl_mem, std::byte*> of;
};
Addresses& addresses() {
  static auto* const all = new Addresses;
  return *all;
}

void CL_CALLBACK forget(cl_mem buffer, void* /*none*/) {
  const std::lock_guard lock(addresses().mutex);
  addresses().of.erase(buffer);
}

/// Only a queue can tell a buffer's address, by mapping the buffer.
std::byte* find_address(StreamView stream, cl_mem buffer) {
  std::size_t size = 0;
  check_cl(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof(size), &size, nullptr), "clGetMemObjectInfo");
  cl_int status = CL_SUCCESS;
  void* const data =
      clEnqueueMapBuffer(stream.queue, buffer, CL_TRUE, CL_MAP_READ, 0, size, 0, nullptr, nullptr, &status);
  check_cl(status, "clEnqueueMapBuffer");
  check_cl(clEnqueueUnmapMemObject(stream.queue, buffer, data, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  check_cl(clSetMemObjectDestructorCallback(buffer, forget, nullptr), "clSetMemObjectDestructorCallback");
  return static_cast<std::byte*>(data);
}

}  // namespace

bool host_shares_memory(const Context& context) {
  const std::vector<Device>& devices = context.devices();
  return std::all_of(devices.begin(), devices.end(), [](const Device& device) {  // else a driver may move a buffer
    return device.caps.type == DeviceType::cpu && device.caps.platform_name == "Portable Computing Language";
  });
}

std::byte* host_address(StreamView stream, const BufferView& view) {
  expect_driver_process();
  Addresses& all = addresses();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.of.find(view.handle); known != all.of.end()) return known->second + view.offset_bytes;
  }
  // Without the lock: this waits for commands, which may need a thread that destroys a buffer and takes the lock.
  std::byte* const found = find_address(stream, view.handle);
  const std::lock_guard lock(all.mutex);
  return all.of.emplace(view.handle, found).first->second + view.offset_bytes;
}

}  // namespace moecl
