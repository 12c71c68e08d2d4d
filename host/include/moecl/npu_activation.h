#ifndef MOECL_NPU_ACTIVATION_H
#define MOECL_NPU_ACTIVATION_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Type of y of dequant_swiglu_quant; fp8 is refused.
typedef enum moecl_dequant_swiglu_type {
  MOECL_DEQUANT_SWIGLU_INT8 = 0,
  MOECL_DEQUANT_SWIGLU_FLOAT8_E4M3FN = 1,
  MOECL_DEQUANT_SWIGLU_FLOAT8_E5M2 = 2
} moecl_dequant_swiglu_type;

/// npu_swiglu: swish of one half of x times the other half
typedef struct moecl_swiglu_args {
  uint64_t size_bytes;
  moecl_tensor x;
  int64_t dim;     ///< dimension that is halved; negative counts from the last
  moecl_tensor y;  ///< out
} moecl_swiglu_args;
moecl_status moecl_swiglu_defaults(moecl_swiglu_args* args);
moecl_status moecl_swiglu_plan(moecl_stream* stream, moecl_swiglu_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_swiglu(moecl_stream* stream, const moecl_swiglu_args* args, const moecl_call* call,
                          uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize
typedef struct moecl_dequant_swiglu_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor weight_scale;      ///< optional
  moecl_tensor activation_scale;  ///< optional
  moecl_tensor bias;              ///< optional
  moecl_tensor quant_scale;       ///< optional
  moecl_tensor quant_offset;      ///< optional
  moecl_tensor group_index;       ///< optional
  int32_t activate_left;          ///< 1: the left half is activated, 0: the right one; of swiglu_mode 0
  int64_t quant_mode;             ///< 0 static, 1 dynamic
  int32_t dst_type;               ///< moecl_dequant_swiglu_type
  int32_t round_mode;             ///< moecl_round_mode: rint
  int64_t activate_dim;           ///< dimension that is halved: the last
  int64_t swiglu_mode;            ///< 0 plain, 1 clamped and interleaved, 2 clamped halves
  double clamp_limit;             ///< swiglu_mode 1 and 2; above 0
  double glu_alpha;               ///< swiglu_mode 1 and 2
  double glu_bias;                ///< swiglu_mode 1 and 2
  moecl_tensor y;                 ///< out
  moecl_tensor scale;             ///< out, of quant_mode 1
} moecl_dequant_swiglu_quant_args;
moecl_status moecl_dequant_swiglu_quant_defaults(moecl_dequant_swiglu_quant_args* args);
moecl_status moecl_dequant_swiglu_quant_plan(moecl_stream* stream, moecl_dequant_swiglu_quant_args* args,
                                             uint64_t* out_workspace_bytes);
moecl_status moecl_dequant_swiglu_quant(moecl_stream* stream, const moecl_dequant_swiglu_quant_args* args,
                                        const moecl_call* call, uint32_t num_wait_events,
                                        struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// _C_ascend.npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize, as vllm-ascend has it
typedef struct moecl_c_ascend_dequant_swiglu_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor weight_scale;      ///< optional
  moecl_tensor activation_scale;  ///< optional
  moecl_tensor bias;              ///< optional
  moecl_tensor quant_scale;       ///< optional
  moecl_tensor quant_offset;      ///< optional
  moecl_tensor group_index;       ///< optional
  int32_t activate_left;          ///< 1: the left half is activated, 0: the right one
  int64_t quant_mode;             ///< 0 static, 1 dynamic
  int64_t swiglu_mode;            ///< 0 plain, 1 clamped; both on halves
  double clamp_limit;             ///< swiglu_mode 1; 0 or less: none
  double glu_alpha;               ///< swiglu_mode 1
  double glu_bias;                ///< swiglu_mode 1
  moecl_tensor y;                 ///< out
  moecl_tensor scale;             ///< out, of quant_mode 1
} moecl_c_ascend_dequant_swiglu_quant_args;
moecl_status moecl_c_ascend_dequant_swiglu_quant_defaults(moecl_c_ascend_dequant_swiglu_quant_args* args);
moecl_status moecl_c_ascend_dequant_swiglu_quant_plan(moecl_stream* stream,
                                                      moecl_c_ascend_dequant_swiglu_quant_args* args,
                                                      uint64_t* out_workspace_bytes);
moecl_status moecl_c_ascend_dequant_swiglu_quant(moecl_stream* stream,
                                                 const moecl_c_ascend_dequant_swiglu_quant_args* args,
                                                 const moecl_call* call, uint32_t num_wait_events,
                                                 struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
