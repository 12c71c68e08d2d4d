// A layer of the OpenCL loader (OPENCL_LAYERS) whose devices are called what RENAMED_DEVICE says.
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <cstdlib>
#include <cstring>

namespace {

const cl_icd_dispatch* below;

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

}  // namespace

extern "C" {

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, std::size_t room, void* to, std::size_t* size) {
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  if (what != CL_LAYER_API_VERSION || (to != nullptr && room < sizeof(version))) return CL_INVALID_VALUE;
  if (size != nullptr) *size = sizeof(version);
  if (to != nullptr) std::memcpy(to, &version, sizeof(version));
  return CL_SUCCESS;
}
CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* entries_ret,
                                            const cl_icd_dispatch** layer) {
  static cl_icd_dispatch table;
  if (target == nullptr || entries_ret == nullptr || layer == nullptr || entries < sizeof(table) / sizeof(void*))
    return CL_INVALID_VALUE;
  below = target;
  table = *target;
  table.clGetDeviceInfo = device_info;
  *entries_ret = sizeof(table) / sizeof(void*);
  *layer = &table;
  return CL_SUCCESS;
}
}
