#ifndef MOECL_NPU_GATING_H
#define MOECL_NPU_GATING_H
#include <moecl/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

/// npu_moe_gating_top_k: scores, groups, the best k experts, weights
typedef struct moecl_moe_gating_top_k_args {
  uint64_t size_bytes;
  moecl_tensor x;
  int64_t k;                     ///< experts a token
  moecl_tensor bias;             ///< optional
  int64_t k_group;               ///< groups that are kept
  int64_t group_count;           ///< equal runs of more than 2 experts; 1: no groups
  int64_t group_select_mode;     ///< a group's score: 0 its maximum, 1 its best two summed
  int64_t renorm;                ///< 1: softmax weights are divided by their sum + eps, as sigmoid ones always are
  int64_t norm_type;             ///< 0 softmax, 1 sigmoid
  int32_t out_flag;              ///< 1: `out` is wanted
  double routed_scaling_factor;  ///< multiplies the weights
  double eps;                    ///< added to the sum
  moecl_tensor y;                ///< out
  moecl_tensor expert_idx;       ///< out
  moecl_tensor out;              ///< out, with out_flag
} moecl_moe_gating_top_k_args;
moecl_status moecl_moe_gating_top_k_defaults(moecl_moe_gating_top_k_args* args);
moecl_status moecl_moe_gating_top_k_plan(moecl_stream* stream, moecl_moe_gating_top_k_args* args,
                                         uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k(moecl_stream* stream, const moecl_moe_gating_top_k_args* args,
                                    const moecl_call* call, uint32_t num_wait_events,
                                    struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_gating_top_k_softmax: softmax, then the best k experts
typedef struct moecl_moe_gating_top_k_softmax_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor finished;    ///< optional
  int64_t k;                ///< experts a token
  moecl_tensor y;           ///< out
  moecl_tensor expert_idx;  ///< out
  moecl_tensor row_idx;     ///< out
} moecl_moe_gating_top_k_softmax_args;
moecl_status moecl_moe_gating_top_k_softmax_defaults(moecl_moe_gating_top_k_softmax_args* args);
moecl_status moecl_moe_gating_top_k_softmax_plan(moecl_stream* stream, moecl_moe_gating_top_k_softmax_args* args,
                                                 uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k_softmax(moecl_stream* stream, const moecl_moe_gating_top_k_softmax_args* args,
                                            const moecl_call* call, uint32_t num_wait_events,
                                            struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_gating_top_k_softmax_v2: the best k experts, softmax before or after the choice
typedef struct moecl_moe_gating_top_k_softmax_v2_args {
  uint64_t size_bytes;
  moecl_tensor x;
  int64_t k;                    ///< experts a token
  moecl_tensor finished;        ///< optional
  int64_t renorm;               ///< 1: softmax over the chosen k instead of over all
  int32_t output_softmax;       ///< 1: softmax_result is wanted; with renorm 1 there is none
  moecl_tensor y;               ///< out
  moecl_tensor expert_idx;      ///< out
  moecl_tensor softmax_result;  ///< out, with output_softmax
} moecl_moe_gating_top_k_softmax_v2_args;
moecl_status moecl_moe_gating_top_k_softmax_v2_defaults(moecl_moe_gating_top_k_softmax_v2_args* args);
moecl_status moecl_moe_gating_top_k_softmax_v2_plan(moecl_stream* stream, moecl_moe_gating_top_k_softmax_v2_args* args,
                                                    uint64_t* out_workspace_bytes);
moecl_status moecl_moe_gating_top_k_softmax_v2(moecl_stream* stream, const moecl_moe_gating_top_k_softmax_v2_args* args,
                                               const moecl_call* call, uint32_t num_wait_events,
                                               struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
