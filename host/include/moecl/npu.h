#ifndef MOECL_NPU_H
#define MOECL_NPU_H
/// @file
/// Operators by the names of the Ascend NPU's, without npu_; this header has what they share, npu_FAMILY.h the
/// operators.
///
/// Every operator X has
/// - moecl_X_args: its tensors and parameters by the operator's names
/// - moecl_X_defaults: sets every parameter to the operator's default; set size_bytes before and tensors after. Here
///   zero is a value like others, not the default.
/// - moecl_X_plan: checks, fills dtype, rank and shape of every output (its memory stays) and says how much workspace
///   the call needs. An output that it leaves at rank 0 is not written.
/// - moecl_X: checks, enqueues and returns; never waits for the device. Compiles its kernels at the first use.
///
/// OPERATORS.md lists tensors, shapes, defaults, roundings and what is refused. A tensor at rank 0 is the operator's
/// None. Rows outside the part that an operator defines are neither read nor written.
#include <moecl/moecl.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A tensor in the caller's cl_mem. All zero: absent.
typedef struct moecl_tensor {
  struct _cl_mem* memory;  ///< may be NULL where the tensor has no elements
  uint64_t offset_bytes;   ///< a multiple of the element's size
  int32_t dtype;           ///< moecl_dtype
  int32_t rank;            ///< Range: [1, 4]; 0: absent
  int64_t shape[4];
  int64_t stride[4];  ///< in elements; all zero: contiguous. 1 in the last dimension, except of weights
} moecl_tensor;

/// Of outputs: room for `count` tensors; the plan sets how many there are.
typedef struct moecl_tensor_list {
  moecl_tensor* items;
  int64_t count;
} moecl_tensor_list;

/// Whole numbers, where the operator takes a list.
typedef struct moecl_int_list {
  const int64_t* items;
  int64_t count;
} moecl_int_list;

/// A whole number that is the operator's None.
#define MOECL_NONE INT64_MIN

/// What becomes of data on the device that the operator does not define.
typedef enum moecl_validation {
  MOECL_STRICT = 0,     ///< data for which the device's behaviour is undefined sets the fault word
  MOECL_COMPATIBLE = 1  ///< such data does what it does on the device where that is known
} moecl_validation;

/// What happens to output elements outside the defined part.
typedef enum moecl_tail {
  MOECL_TAIL_UNTOUCHED = 0,
  MOECL_TAIL_POISON = 1,  ///< NaN, or bytes of 0x5A in integers
  MOECL_TAIL_ZERO = 2
} moecl_tail;

/// How a number between two codes becomes one. Operators say which they have.
typedef enum moecl_round_mode {
  MOECL_ROUND_MODE_RINT = 0,   ///< the nearest, halves to even
  MOECL_ROUND_MODE_ROUND = 1,  ///< the nearest, halves away from zero
  MOECL_ROUND_MODE_FLOOR = 2,  ///< the lower
  MOECL_ROUND_MODE_CEIL = 3,   ///< the upper
  MOECL_ROUND_MODE_TRUNC = 4   ///< the one nearer to zero
} moecl_round_mode;

/// Type of y of dequant_swiglu_quant; fp8 is refused.
typedef enum moecl_dequant_swiglu_type {
  MOECL_DEQUANT_SWIGLU_INT8 = 0,
  MOECL_DEQUANT_SWIGLU_FLOAT8_E4M3FN = 1,
  MOECL_DEQUANT_SWIGLU_FLOAT8_E5M2 = 2
} moecl_dequant_swiglu_type;

/// How rows travel. All but `hierarchy`, server by server, are alike here.
typedef enum moecl_comm_alg {
  MOECL_COMM_ALG_DEFAULT = 0,
  MOECL_COMM_ALG_FULLMESH = 1,
  MOECL_COMM_ALG_FULLMESH_V1 = 2,
  MOECL_COMM_ALG_FULLMESH_V2 = 3,
  MOECL_COMM_ALG_HIERARCHY = 4
} moecl_comm_alg;

/// What rows of MOECL_U8 are that no moecl_dtype names.
typedef enum moecl_row_code_type {
  MOECL_ROW_CODE_NONE = 0,
  MOECL_ROW_CODE_E2M1 = 1,  ///< fp4, two to a byte, element 0 in the low bits
  MOECL_ROW_CODE_E1M2 = 2,
  MOECL_ROW_CODE_HIF8 = 3  ///< HiFloat8
} moecl_row_code_type;

/// How the swiglu_quant operators quantize rows.
typedef enum moecl_swiglu_quant_rounding {
  MOECL_SWIGLU_QUANT_RECIPROCAL = 0,      ///< x * (127 / amax), scale 1 / (127 / amax)
  MOECL_SWIGLU_QUANT_DOUBLE_ROUNDING = 1  ///< x * (1 / (amax / 127)) to f16, then to int8; scale amax / 127
} moecl_swiglu_quant_rounding;

/// What u8 codes mean, on devices that multiply them.
typedef enum moecl_code_type {
  MOECL_CODE_NONE = 0,
  MOECL_CODE_E4M3 = 1,
  MOECL_CODE_E5M2 = 2,
  MOECL_CODE_E2M1 = 3,
  MOECL_CODE_FLOAT8_E8M0FNU = 4
} moecl_code_type;

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

/// What a block's numbers become; fp4 codes lie two to a byte, element 0 in the low bits.
typedef enum moecl_mx_type {
  MOECL_MX_FLOAT4_E2M1FN_X2 = 0,
  MOECL_MX_FLOAT4_E1M2FN_X2 = 1,
  MOECL_MX_FLOAT8_E4M3FN = 2,
  MOECL_MX_FLOAT8_E5M2 = 3
} moecl_mx_type;

/// How int8 rows of moe_init_routing_v2's quant_mode 1 round their halves.
typedef enum moecl_routing_rounding {
  MOECL_ROUTING_TIES_EVEN = 0,
  MOECL_ROUTING_GENERAL_TEMPLATE = 1  ///< away from zero, as the device's general template
} moecl_routing_rounding;

/// How an operator is called.
typedef struct moecl_call {
  uint64_t size_bytes;
  moecl_device_array workspace;  ///< offset a multiple of 256; this stream's alone until the operator completes
  uint64_t workspace_bytes;      ///< at least what the plan says; 0: up to the end of the cl_mem
  int32_t validation;            ///< moecl_validation
  int32_t tail;                  ///< moecl_tail
  /// optional in/out. Shape: [4] int32; zero it before, moecl_check_fault after. Without it data is not checked.
  moecl_device_array fault;
} moecl_call;

#ifdef __cplusplus
}
#endif
#endif
