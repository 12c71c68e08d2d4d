#ifndef MOECL_NPU_QUANT_H
#define MOECL_NPU_QUANT_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What codes are; fp8 is refused.
typedef enum moecl_quant_type {
  MOECL_QUANT_INT8 = 0,
  MOECL_QUANT_QUINT4X2 = 1,  ///< int4, eight in an i32, element 0 in the lowest bits
  MOECL_QUANT_FLOAT8_E4M3FN = 2,
  MOECL_QUANT_FLOAT8_E5M2 = 3
} moecl_quant_type;

/// The templates of dynamic_quant; they differ by at most one unit. For int4 read 7 instead of 127.
typedef enum moecl_dynamic_quant_rounding {
  MOECL_DYNAMIC_QUANT_DIVIDE = 0,              ///< x / (amax / 127)
  MOECL_DYNAMIC_QUANT_DIVIDE_BY_MULSCALE = 1,  ///< x / scale, scale = amax * (1 / 127)
  MOECL_DYNAMIC_QUANT_PLAIN_TEMPLATE = 2,      ///< x * (127 / amax), scale = 1 / (127 / amax)
  MOECL_DYNAMIC_QUANT_MULTIROW_TEMPLATE = 3    ///< x * (127 / amax), scale = amax * (1 / 127)
} moecl_dynamic_quant_rounding;

/// npu_dynamic_quant: rows to int8 or int4, a scale for each
typedef struct moecl_dynamic_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor smooth_scales;  ///< optional
  moecl_tensor group_index;    ///< optional
  int32_t dst_type;            ///< moecl_quant_type
  moecl_tensor y;              ///< out
  moecl_tensor scale;          ///< out
  int32_t rounding;            ///< moecl_dynamic_quant_rounding
} moecl_dynamic_quant_args;
moecl_status moecl_dynamic_quant_defaults(moecl_dynamic_quant_args* args);
moecl_status moecl_dynamic_quant_plan(moecl_stream* stream, moecl_dynamic_quant_args* args,
                                      uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_quant(moecl_stream* stream, const moecl_dynamic_quant_args* args, const moecl_call* call,
                                 uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                 struct _cl_event** out_event);

/// npu_dynamic_quant_asymmetric: rows to int8 or int4, a scale and an offset for each
typedef struct moecl_dynamic_quant_asymmetric_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor smooth_scales;  ///< optional
  moecl_tensor group_index;    ///< optional
  int32_t dst_type;            ///< moecl_quant_type
  moecl_tensor y;              ///< out
  moecl_tensor scale;          ///< out
  moecl_tensor offset;         ///< out
} moecl_dynamic_quant_asymmetric_args;
moecl_status moecl_dynamic_quant_asymmetric_defaults(moecl_dynamic_quant_asymmetric_args* args);
moecl_status moecl_dynamic_quant_asymmetric_plan(moecl_stream* stream, moecl_dynamic_quant_asymmetric_args* args,
                                                 uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_quant_asymmetric(moecl_stream* stream, const moecl_dynamic_quant_asymmetric_args* args,
                                            const moecl_call* call, uint32_t num_wait_events,
                                            struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// What a block's numbers become; fp4 codes lie two to a byte, element 0 in the low bits.
typedef enum moecl_mx_type {
  MOECL_MX_FLOAT4_E2M1FN_X2 = 0,
  MOECL_MX_FLOAT4_E1M2FN_X2 = 1,
  MOECL_MX_FLOAT8_E4M3FN = 2,
  MOECL_MX_FLOAT8_E5M2 = 3
} moecl_mx_type;

/// npu_dynamic_mx_quant: blocks of 32 to fp8 or fp4, a power of two as the scale of each
typedef struct moecl_dynamic_mx_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  int64_t axis;
  int32_t round_mode;  ///< moecl_round_mode: rint, for fp4 also floor and round
  int32_t dst_type;    ///< moecl_mx_type
  int64_t block_size;
  int64_t scale_alg;
  moecl_tensor y;        ///< out
  moecl_tensor mxscale;  ///< out
} moecl_dynamic_mx_quant_args;
moecl_status moecl_dynamic_mx_quant_defaults(moecl_dynamic_mx_quant_args* args);
moecl_status moecl_dynamic_mx_quant_plan(moecl_stream* stream, moecl_dynamic_mx_quant_args* args,
                                         uint64_t* out_workspace_bytes);
moecl_status moecl_dynamic_mx_quant(moecl_stream* stream, const moecl_dynamic_mx_quant_args* args,
                                    const moecl_call* call, uint32_t num_wait_events,
                                    struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
