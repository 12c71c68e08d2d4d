#pragma once
// The two entries of a layer of the OpenCL loader (OPENCL_LAYERS), written once. The one source of a layer includes
// this and defines `override_entries`.
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <cstddef>
#include <cstring>

namespace {

const cl_icd_dispatch* below;  ///< what the layer calls: the next layer, or the loader
/// Puts the layer's own entries into `table`, which has those below.
void override_entries(cl_icd_dispatch& table);

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
  override_entries(table);
  *entries_ret = sizeof(table) / sizeof(void*);
  *layer = &table;
  return CL_SUCCESS;
}
}
