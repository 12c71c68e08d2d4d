#pragma once
// The two entry points of an OpenCL loader layer (OPENCL_LAYERS), written once for all layers. A layer's only source
// file includes this header and defines `override_entries`.
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <cstddef>
#include <cstring>

namespace {

const cl_icd_dispatch* below;  ///< the functions that the layer calls: the next layer's, or the loader's
/// Puts the layer's own functions into `table`, a copy of `*below`.
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
