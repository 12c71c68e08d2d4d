#include <moecl/npu_activation.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_activation.hpp"

using namespace moecl;

moecl_status moecl_swiglu_defaults(moecl_swiglu_args* args) { return c_api::operator_defaults<npu::SwigluArgs>(args); }
moecl_status moecl_swiglu_plan(moecl_stream* stream, moecl_swiglu_args* args, uint64_t* out_workspace_bytes) {
  return c_api::operator_plan<npu::SwigluArgs>(stream, args, out_workspace_bytes);
}
moecl_status moecl_swiglu(moecl_stream* stream, const moecl_swiglu_args* args, const moecl_call* call,
                          uint32_t num_wait_events, _cl_event* const* wait_events, _cl_event** out_event) {
  return c_api::operator_call<npu::SwigluArgs>(stream, args, call, num_wait_events, wait_events, out_event);
}
