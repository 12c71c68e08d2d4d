#ifndef MOECL_NPU_ACTIVATION_H
#define MOECL_NPU_ACTIVATION_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// npu_swiglu
typedef struct moecl_swiglu_args {
  uint64_t size_bytes;
  moecl_tensor x;
  int64_t dim;
  moecl_tensor y;  ///< out
} moecl_swiglu_args;
moecl_status moecl_swiglu_defaults(moecl_swiglu_args* args);
moecl_status moecl_swiglu_plan(moecl_stream* stream, moecl_swiglu_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_swiglu(moecl_stream* stream, const moecl_swiglu_args* args, const moecl_call* call,
                          uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
