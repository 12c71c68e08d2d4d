#ifndef MOECL_NPU_QUANT_H
#define MOECL_NPU_QUANT_H
// Written by `moecl op --header quant`; a test compares it.
#include <moecl/npu.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_dynamic_quant: rows to int8, int4 or fp8, a scale for each
typedef struct moecl_dynamic_quant_args {
  uint64_t size_bytes;
  /// [..., H] f16 or bf16, or beyond the operator f32
  moecl_tensor x;
  /// optional [H], with group_index [G, H]; a float type
  moecl_tensor smooth_scales;
  /// optional [G] i32 or i64: cumulative row ends
  moecl_tensor group_index;
  /// what codes are: 0 int8, 1 quint4x2, 2 float8_e4m3fn, 3 float8_e5m2
  int32_t dst_type;
  /// out: [..., H] i8, of fp8 u8, or [..., H / 8] i32
  moecl_tensor y;
  /// out: x's shape without the last dimension, f32
  moecl_tensor scale;
  /// which template's rounding: 0 divide, 1 divide_by_mulscale, 2 plain_template, 3 multirow_template
  int32_t rounding;
} moecl_dynamic_quant_args;
moecl_status moecl_dynamic_quant_defaults(moecl_dynamic_quant_args* args);
moecl_status moecl_dynamic_quant_plan(
    moecl_stream* stream, moecl_dynamic_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_quant(
    moecl_stream* stream, const moecl_dynamic_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_dynamic_quant_asymmetric: rows to int8 or int4, a scale and an offset for each
typedef struct moecl_dynamic_quant_asymmetric_args {
  uint64_t size_bytes;
  /// [..., H] f16 or bf16, or beyond the operator f32
  moecl_tensor x;
  /// optional [H], with group_index [G, H]; a float type
  moecl_tensor smooth_scales;
  /// optional [G] i32 or i64: cumulative row ends
  moecl_tensor group_index;
  /// what codes are: 0 int8, 1 quint4x2, 2 float8_e4m3fn, 3 float8_e5m2
  int32_t dst_type;
  /// out: [..., H] i8, or [..., H / 8] i32
  moecl_tensor y;
  /// out: x's shape without the last dimension, f32
  moecl_tensor scale;
  /// out: as scale, f32
  moecl_tensor offset;
} moecl_dynamic_quant_asymmetric_args;
moecl_status moecl_dynamic_quant_asymmetric_defaults(moecl_dynamic_quant_asymmetric_args* args);
moecl_status moecl_dynamic_quant_asymmetric_plan(
    moecl_stream* stream, moecl_dynamic_quant_asymmetric_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_quant_asymmetric(
    moecl_stream* stream, const moecl_dynamic_quant_asymmetric_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_dynamic_mx_quant: blocks of 32 to fp8 or fp4, a power of two as the scale of each
typedef struct moecl_dynamic_mx_quant_args {
  uint64_t size_bytes;
  /// one to three dimensions; f16 or bf16, or beyond the operator f32
  moecl_tensor x;
  /// along which blocks run
  int64_t axis;
  /// rint, for fp4 also floor and round (away from zero): 0 rint, 1 round, 2 floor, 3 ceil, 4 trunc
  int32_t round_mode;
  /// what codes are: 0 float4_e2m1fn_x2, 1 float4_e1m2fn_x2, 2 float8_e4m3fn, 3 float8_e5m2
  int32_t dst_type;
  /// elements that share a scale: 32
  int64_t block_size;
  /// 0: 2^(floor(log2(amax)) - emax), 1 (fp8): 2^ceil(log2(amax / largest))
  int64_t scale_alg;
  /// out: x's shape, with half the last dimension for fp4; u8
  moecl_tensor y;
  /// out: x's shape with ceil(blocks / 2) at the axis, and 2; u8: e8m0
  moecl_tensor mxscale;
} moecl_dynamic_mx_quant_args;
moecl_status moecl_dynamic_mx_quant_defaults(moecl_dynamic_mx_quant_args* args);
moecl_status moecl_dynamic_mx_quant_plan(
    moecl_stream* stream, moecl_dynamic_mx_quant_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_mx_quant(
    moecl_stream* stream, const moecl_dynamic_mx_quant_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
