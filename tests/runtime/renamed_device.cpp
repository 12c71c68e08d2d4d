// A layer of the OpenCL loader (OPENCL_LAYERS) whose devices have the name in RENAMED_DEVICE.
#include <CL/cl.h>

#include <cstdlib>
#include <cstring>

#include "tests/opencl_layer.hpp"

namespace {

cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info what, std::size_t room, void* to,
                               std::size_t* size) {
  const char* const name = std::getenv("RENAMED_DEVICE");
  if (what != CL_DEVICE_NAME || name == nullptr) return below->clGetDeviceInfo(device, what, room, to, size);
  const std::size_t needed = std::strlen(name) + 1;
  if (size != nullptr) *size = needed;
  if (to != nullptr && room < needed) return CL_INVALID_VALUE;
  if (to != nullptr) std::memcpy(to, name, needed);
  return CL_SUCCESS;
}

void override_entries(cl_icd_dispatch& table) { table.clGetDeviceInfo = device_info; }

}  // namespace
