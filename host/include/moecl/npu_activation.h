#ifndef MOECL_NPU_ACTIVATION_H
#define MOECL_NPU_ACTIVATION_H
// Written by `moecl op --header activation`; a test compares it.
#include <moecl/npu.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_swiglu: swish of one half of x times the other half
typedef struct moecl_swiglu_args {
  uint64_t size_bytes;
  /// [..., 2D, ...] f32, f16 or bf16
  moecl_tensor x;
  /// dimension that is halved; negative counts from the last
  int64_t dim;
  /// out: [..., D, ...], x's dtype
  moecl_tensor y;
} moecl_swiglu_args;
moecl_status moecl_swiglu_defaults(moecl_swiglu_args* args);
moecl_status moecl_swiglu_plan(
    moecl_stream* stream, moecl_swiglu_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_swiglu(
    moecl_stream* stream, const moecl_swiglu_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize
typedef struct moecl_dequant_swiglu_quant_args {
  uint64_t size_bytes;
  /// [..., 2H] i32, f16, bf16 or f32
  moecl_tensor x;
  /// optional, required for i32: [2H] or [1, 2H], with groups [G, 2H]; f32
  moecl_tensor weight_scale;
  /// optional, for i32: one f32 for each row, [T] or [T, 1]
  moecl_tensor activation_scale;
  /// optional, for i32: [2H] or [1, 2H], i32 or a float type; ignored with group_index
  moecl_tensor bias;
  /// optional, required for quant_mode 0: [H], [1, H], [1] or [G, H] f32
  moecl_tensor quant_scale;
  /// optional, for quant_mode 0: as quant_scale
  moecl_tensor quant_offset;
  /// optional [G] i32 or i64: counts of rows
  moecl_tensor group_index;
  /// swiglu_mode 0: the left half is activated, else the right one; 1 or 0
  int32_t activate_left;
  /// 0 static, 1 dynamic
  int64_t quant_mode;
  /// type of y: 0 int8, 1 float8_e4m3fn, 2 float8_e5m2
  int32_t dst_type;
  /// rounding of y: 0 rint, 1 round, 2 floor, 3 ceil, 4 trunc
  int32_t round_mode;
  /// dimension that is halved
  int64_t activate_dim;
  /// 0 plain, 1 clamped and interleaved, 2 clamped halves
  int64_t swiglu_mode;
  /// swiglu_mode 1 and 2; above 0
  double clamp_limit;
  /// swiglu_mode 1 and 2
  double glu_alpha;
  /// swiglu_mode 1 and 2
  double glu_bias;
  /// out: [..., H] i8
  moecl_tensor y;
  /// out: x's shape without the last dimension, f32; with quant_mode 1
  moecl_tensor scale;
} moecl_dequant_swiglu_quant_args;
moecl_status moecl_dequant_swiglu_quant_defaults(moecl_dequant_swiglu_quant_args* args);
moecl_status moecl_dequant_swiglu_quant_plan(
    moecl_stream* stream, moecl_dequant_swiglu_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_dequant_swiglu_quant(
    moecl_stream* stream, const moecl_dequant_swiglu_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// _C_ascend.npu_dequant_swiglu_quant: dequantize, SwiGLU, quantize, as vllm-ascend has it
typedef struct moecl_c_ascend_dequant_swiglu_quant_args {
  uint64_t size_bytes;
  /// [..., 2H] i32, f16, bf16 or f32
  moecl_tensor x;
  /// optional, required for i32: [2H] or [1, 2H], with groups [G, 2H]; f32
  moecl_tensor weight_scale;
  /// optional, for i32: one f32 for each row, [T] or [T, 1]
  moecl_tensor activation_scale;
  /// optional, for i32: [2H] or [1, 2H], i32 or a float type; ignored with group_index
  moecl_tensor bias;
  /// optional, required for quant_mode 0: [H], [1, H], [1] or [G, H] f32
  moecl_tensor quant_scale;
  /// optional, for quant_mode 0: as quant_scale
  moecl_tensor quant_offset;
  /// optional [G] i32 or i64: counts of rows
  moecl_tensor group_index;
  /// the left half is activated, else the right one; 1 or 0
  int32_t activate_left;
  /// 0 static, 1 dynamic
  int64_t quant_mode;
  /// 0 plain, 1 clamped; both on halves
  int64_t swiglu_mode;
  /// swiglu_mode 1; 0 or less: none
  double clamp_limit;
  /// swiglu_mode 1
  double glu_alpha;
  /// swiglu_mode 1
  double glu_bias;
  /// out: [..., H] i8
  moecl_tensor y;
  /// out: x's shape without the last dimension, f32; with quant_mode 1
  moecl_tensor scale;
} moecl_c_ascend_dequant_swiglu_quant_args;
moecl_status moecl_c_ascend_dequant_swiglu_quant_defaults(moecl_c_ascend_dequant_swiglu_quant_args* args);
moecl_status moecl_c_ascend_dequant_swiglu_quant_plan(
    moecl_stream* stream, moecl_c_ascend_dequant_swiglu_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_c_ascend_dequant_swiglu_quant(
    moecl_stream* stream, const moecl_c_ascend_dequant_swiglu_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
