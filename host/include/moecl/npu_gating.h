#ifndef MOECL_NPU_GATING_H
#define MOECL_NPU_GATING_H
// Written by `moecl op --header gating`; a test compares it.
#include <moecl/npu.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_moe_gating_top_k: scores, groups, the best k experts, weights
typedef struct moecl_moe_gating_top_k_args {
  uint64_t size_bytes;
  /// [N, E] or [A, B, E] f32, f16 or bf16; E at most 2048
  moecl_tensor x;
  /// experts a token
  int64_t k;
  /// optional [E], a float type: added for the choice only
  moecl_tensor bias;
  /// groups that are kept
  int64_t k_group;
  /// equal runs of more than 2 experts; 1: no groups
  int64_t group_count;
  /// a group's score: 0 its maximum, 1 its best two summed
  int64_t group_select_mode;
  /// 1: softmax weights are divided by their sum + eps, as sigmoid ones always are
  int64_t renorm;
  /// 0 softmax, 1 sigmoid
  int64_t norm_type;
  /// whether `out` is wanted; 1 or 0
  int32_t out_flag;
  /// multiplies the weights
  double routed_scaling_factor;
  /// added to the sum
  double eps;
  /// out: [..., k], x's dtype: weights
  moecl_tensor y;
  /// out: [..., k] i32
  moecl_tensor expert_idx;
  /// out: as x, f32: scores of all experts without bias; with out_flag
  moecl_tensor out;
} moecl_moe_gating_top_k_args;
moecl_status moecl_moe_gating_top_k_defaults(moecl_moe_gating_top_k_args* args);
moecl_status moecl_moe_gating_top_k_plan(
    moecl_stream* stream, moecl_moe_gating_top_k_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k(
    moecl_stream* stream, const moecl_moe_gating_top_k_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_gating_top_k_softmax: softmax, then the best k experts
typedef struct moecl_moe_gating_top_k_softmax_args {
  uint64_t size_bytes;
  /// [N, E] or [A, B, E] f32, f16 or bf16; E at most 1024
  moecl_tensor x;
  /// optional, boolean or u8 for each token: its expert_idx become E
  moecl_tensor finished;
  /// experts a token
  int64_t k;
  /// out: [..., k], x's dtype: weights
  moecl_tensor y;
  /// out: [..., k] i32
  moecl_tensor expert_idx;
  /// out: [..., k] i32: k * N + n
  moecl_tensor row_idx;
} moecl_moe_gating_top_k_softmax_args;
moecl_status moecl_moe_gating_top_k_softmax_defaults(moecl_moe_gating_top_k_softmax_args* args);
moecl_status moecl_moe_gating_top_k_softmax_plan(
    moecl_stream* stream, moecl_moe_gating_top_k_softmax_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k_softmax(
    moecl_stream* stream, const moecl_moe_gating_top_k_softmax_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_gating_top_k_softmax_v2: the best k experts, softmax before or after the choice
typedef struct moecl_moe_gating_top_k_softmax_v2_args {
  uint64_t size_bytes;
  /// [N, E] or [A, B, E] f32, f16 or bf16; E at most 1024
  moecl_tensor x;
  /// experts a token
  int64_t k;
  /// optional, boolean or u8 for each token: its expert_idx become E
  moecl_tensor finished;
  /// 1: softmax over the chosen k instead of over all
  int64_t renorm;
  /// whether softmax_result is wanted; with renorm 1 there is none; 1 or 0
  int32_t output_softmax;
  /// out: [..., k], x's dtype: weights
  moecl_tensor y;
  /// out: [..., k] i32
  moecl_tensor expert_idx;
  /// out: as x, f32; with output_softmax
  moecl_tensor softmax_result;
} moecl_moe_gating_top_k_softmax_v2_args;
moecl_status moecl_moe_gating_top_k_softmax_v2_defaults(moecl_moe_gating_top_k_softmax_v2_args* args);
moecl_status moecl_moe_gating_top_k_softmax_v2_plan(
    moecl_stream* stream, moecl_moe_gating_top_k_softmax_v2_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k_softmax_v2(
    moecl_stream* stream, const moecl_moe_gating_top_k_softmax_v2_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
