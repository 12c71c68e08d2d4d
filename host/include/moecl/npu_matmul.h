#ifndef MOECL_NPU_MATMUL_H
#define MOECL_NPU_MATMUL_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// How the swiglu_quant operators quantize rows.
typedef enum moecl_swiglu_quant_rounding {
  MOECL_SWIGLU_QUANT_RECIPROCAL = 0,      ///< x * (127 / amax), scale 1 / (127 / amax)
  MOECL_SWIGLU_QUANT_DOUBLE_ROUNDING = 1  ///< x * (1 / (amax / 127)) to f16, then to int8; scale amax / 127
} moecl_swiglu_quant_rounding;

/// npu_quant_matmul: i8 x i8 or int4, dequantized or requantized
typedef struct moecl_quant_matmul_args {
  uint64_t size_bytes;
  moecl_tensor x1;
  moecl_tensor x2;
  moecl_tensor scale;
  moecl_tensor offset;          ///< optional
  moecl_tensor pertoken_scale;  ///< optional
  moecl_tensor bias;            ///< optional
  int32_t output_dtype;         ///< moecl_dtype i8, f16, bf16, f32, or i32: the bare sums; 0: i8
  moecl_tensor y;               ///< out
} moecl_quant_matmul_args;
moecl_status moecl_quant_matmul_defaults(moecl_quant_matmul_args* args);
moecl_status moecl_quant_matmul_plan(moecl_stream* stream, moecl_quant_matmul_args* args,
                                     uint64_t* out_workspace_bytes);
moecl_status moecl_quant_matmul(moecl_stream* stream, const moecl_quant_matmul_args* args, const moecl_call* call,
                                uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                struct _cl_event** out_event);

/// What u8 codes mean, on devices that multiply them.
typedef enum moecl_code_type {
  MOECL_CODE_NONE = 0,
  MOECL_CODE_E4M3 = 1,
  MOECL_CODE_E5M2 = 2,
  MOECL_CODE_E2M1 = 3,
  MOECL_CODE_FLOAT8_E8M0FNU = 4
} moecl_code_type;

/// npu_grouped_matmul: for each group its rows times its weights
typedef struct moecl_grouped_matmul_args {
  uint64_t size_bytes;
  moecl_tensor_list x;
  moecl_tensor_list weight;
  moecl_tensor_list bias;              ///< optional
  moecl_tensor_list scale;             ///< optional
  moecl_tensor_list offset;            ///< optional
  moecl_tensor_list antiquant_scale;   ///< optional
  moecl_tensor_list antiquant_offset;  ///< optional
  moecl_tensor_list per_token_scale;   ///< optional
  moecl_tensor group_list;             ///< optional
  int64_t split_item;                  ///< 0, 1: a y for each group; 2, 3: one y
  int64_t group_type;                  ///< -1 x and weight pair up, 0 groups of rows, 2 groups of K
  int64_t group_list_type;             ///< 0 cumulative, 1 counts, 2 (group, count) pairs
  int64_t act_type;                    ///< 0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu
  int32_t output_dtype;                ///< moecl_dtype, of i8 x also f16, bf16, f32 and i32; 0: x's
  int32_t x_dtype;                     ///< moecl_code_type, as of the next three; MOECL_CODE_NONE: no codes
  int32_t weight_dtype;
  int32_t scale_dtype;
  int32_t per_token_scale_dtype;
  moecl_tensor_list y;  ///< out
} moecl_grouped_matmul_args;
moecl_status moecl_grouped_matmul_defaults(moecl_grouped_matmul_args* args);
moecl_status moecl_grouped_matmul_plan(moecl_stream* stream, moecl_grouped_matmul_args* args,
                                       uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul(moecl_stream* stream, const moecl_grouped_matmul_args* args, const moecl_call* call,
                                  uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                  struct _cl_event** out_event);

/// npu_grouped_matmul_swiglu_quant: grouped product, swish of its gate times up, int8 rows
typedef struct moecl_grouped_matmul_swiglu_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor weight;
  moecl_tensor group_list;
  moecl_tensor weight_scale;
  moecl_tensor x_scale;
  moecl_tensor bias;          ///< optional
  int32_t rounding;           ///< moecl_swiglu_quant_rounding
  moecl_tensor output;        ///< out
  moecl_tensor output_scale;  ///< out
} moecl_grouped_matmul_swiglu_quant_args;
moecl_status moecl_grouped_matmul_swiglu_quant_defaults(moecl_grouped_matmul_swiglu_quant_args* args);
moecl_status moecl_grouped_matmul_swiglu_quant_plan(moecl_stream* stream, moecl_grouped_matmul_swiglu_quant_args* args,
                                                    uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_swiglu_quant(moecl_stream* stream, const moecl_grouped_matmul_swiglu_quant_args* args,
                                               const moecl_call* call, uint32_t num_wait_events,
                                               struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_grouped_matmul_swiglu_quant_v2: the same with lists of weights, counts and a smooth scale
typedef struct moecl_grouped_matmul_swiglu_quant_v2_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor_list weight;
  moecl_tensor_list weight_scale;
  moecl_tensor x_scale;
  moecl_tensor group_list;
  moecl_tensor smooth_scale;               ///< optional
  moecl_tensor_list weight_assist_matrix;  ///< optional
  moecl_tensor bias;                       ///< optional
  int64_t dequant_mode;                    ///< 0 a scale for each channel, 1 for each group of K
  int64_t quant_mode;                      ///< 0: a scale for each row
  int64_t group_list_type;                 ///< 0 cumulative, 1 counts
  int32_t rounding;                        ///< moecl_swiglu_quant_rounding
  moecl_tensor output;                     ///< out
  moecl_tensor output_scale;               ///< out
} moecl_grouped_matmul_swiglu_quant_v2_args;
moecl_status moecl_grouped_matmul_swiglu_quant_v2_defaults(moecl_grouped_matmul_swiglu_quant_v2_args* args);
moecl_status moecl_grouped_matmul_swiglu_quant_v2_plan(moecl_stream* stream,
                                                       moecl_grouped_matmul_swiglu_quant_v2_args* args,
                                                       uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_swiglu_quant_v2(moecl_stream* stream,
                                                  const moecl_grouped_matmul_swiglu_quant_v2_args* args,
                                                  const moecl_call* call, uint32_t num_wait_events,
                                                  struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// _C_ascend.grouped_matmul_swiglu_quant: vllm-ascend's form: the activation may be clamped
typedef struct moecl_c_ascend_grouped_matmul_swiglu_quant_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor weight;
  moecl_tensor bias;  ///< optional
  moecl_tensor group_list;
  moecl_tensor weight_scale;
  moecl_tensor x_scale;
  double swiglu_limit;        ///< above 0: gate at most this, up within plus and minus this
  int32_t rounding;           ///< moecl_swiglu_quant_rounding
  moecl_tensor output;        ///< out
  moecl_tensor output_scale;  ///< out
} moecl_c_ascend_grouped_matmul_swiglu_quant_args;
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant_defaults(moecl_c_ascend_grouped_matmul_swiglu_quant_args* args);
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant_plan(moecl_stream* stream,
                                                             moecl_c_ascend_grouped_matmul_swiglu_quant_args* args,
                                                             uint64_t* out_workspace_bytes);
moecl_status moecl_c_ascend_grouped_matmul_swiglu_quant(moecl_stream* stream,
                                                        const moecl_c_ascend_grouped_matmul_swiglu_quant_args* args,
                                                        const moecl_call* call, uint32_t num_wait_events,
                                                        struct _cl_event* const* wait_events,
                                                        struct _cl_event** out_event);

/// npu_grouped_matmul_finalize_routing: grouped product whose rows are added to their tokens
typedef struct moecl_grouped_matmul_finalize_routing_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor weight;
  moecl_tensor group_list;
  moecl_tensor scale;
  moecl_tensor bias;            ///< optional
  moecl_tensor pertoken_scale;  ///< optional
  moecl_tensor shared_input;    ///< optional
  moecl_tensor logit;           ///< optional
  moecl_tensor row_index;
  int32_t dtype;                ///< moecl_dtype f32, f16 or bf16; 0: f32
  double shared_input_weight;   ///< multiplies shared_input
  int64_t shared_input_offset;  ///< row of y that shared_input starts at
  int64_t output_bs;            ///< rows of y; 0: M
  int64_t group_list_type;      ///< 0 cumulative, 1 counts
  moecl_tensor y;               ///< out
} moecl_grouped_matmul_finalize_routing_args;
moecl_status moecl_grouped_matmul_finalize_routing_defaults(moecl_grouped_matmul_finalize_routing_args* args);
moecl_status moecl_grouped_matmul_finalize_routing_plan(moecl_stream* stream,
                                                        moecl_grouped_matmul_finalize_routing_args* args,
                                                        uint64_t* out_workspace_bytes);
moecl_status moecl_grouped_matmul_finalize_routing(moecl_stream* stream,
                                                   const moecl_grouped_matmul_finalize_routing_args* args,
                                                   const moecl_call* call, uint32_t num_wait_events,
                                                   struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
