#pragma once
#include <moecl/npu.hpp>

namespace moecl::npu {

/// Computes the scores of all experts, chooses the best k, and computes their weights. `y` holds the scores of the
/// chosen experts without bias, times routed_scaling_factor. With norm_type 1 or renorm 1 the scores are first divided
/// by their sum + eps. f32 arithmetic, rounded once to x's dtype. Of equal scores the lower expert wins; a row of NaN
/// chooses experts 0 to k - 1.
///
/// Source: npu_moe_gating_top_k
struct MoeGatingTopKArgs {
  TensorView x;                        ///< Shape: [N, E] or [A, B, E] f32, f16 or bf16. Range: E <= 2048
  std::int64_t k = 1;                  ///< Range: [1, k_group * E / group_count]
  TensorView bias;                     ///< optional. Shape: [E], a float type: added for the choice only
  std::int64_t k_group = 1;            ///< groups that are kept
  std::int64_t group_count = 1;        ///< groups are equal runs of more than 2 experts; 1: no groups
  std::int64_t group_select_mode = 0;  ///< a group's score: 0 its maximum, 1 the sum of its best two
  std::int64_t renorm = 0;             ///< 1: with softmax, too, the chosen scores are divided by their sum
  std::int64_t norm_type = 0;          ///< 0 softmax, 1 sigmoid
  bool out_flag = false;               ///< whether `out` is wanted
  double routed_scaling_factor = 1;
  double eps = 1e-20;
  TensorView y;           ///< out. Shape: [..., k], x's dtype
  TensorView expert_idx;  ///< out. Shape: [..., k] i32, by descending score with bias
  TensorView out;         ///< out with out_flag. Shape: as x, f32: the scores of all experts, without bias
};
void infer(MoeGatingTopKArgs& args);
std::uint64_t workspace_bytes(const MoeGatingTopKArgs& args, const Device& device);
OperatorCost cost(const MoeGatingTopKArgs& args);
void moe_gating_top_k(StreamView stream, const MoeGatingTopKArgs& args, const Call& how = {});

/// Softmax of every row, then the best k. Finished tokens get expert id E, "no expert", and their ordinary weights.
///
/// Source: npu_moe_gating_top_k_softmax
struct MoeGatingTopKSoftmaxArgs {
  TensorView x;         ///< Shape: [N, E] or [A, B, E] f32, f16 or bf16. Range: E <= 1024
  TensorView finished;  ///< optional. Shape: x's without the last dimension, boolean or u8
  std::int64_t k = 1;
  TensorView y;           ///< out. Shape: [..., k], x's dtype
  TensorView expert_idx;  ///< out. Shape: [..., k] i32
  TensorView row_idx;     ///< out. Shape: [..., k] i32: slot k * N + n
};
void infer(MoeGatingTopKSoftmaxArgs& args);
std::uint64_t workspace_bytes(const MoeGatingTopKSoftmaxArgs& args, const Device& device);
OperatorCost cost(const MoeGatingTopKSoftmaxArgs& args);
void moe_gating_top_k_softmax(StreamView stream, const MoeGatingTopKSoftmaxArgs& args, const Call& how = {});

/// As moe_gating_top_k_softmax. With renorm 1 the softmax is taken over the k best values only.
///
/// Source: npu_moe_gating_top_k_softmax_v2
struct MoeGatingTopKSoftmaxV2Args {
  TensorView x;  ///< Shape: [N, E] or [A, B, E] f32, f16 or bf16. Range: E <= 1024
  std::int64_t k = 1;
  TensorView finished;          ///< optional. Shape: x's without the last dimension, boolean or u8
  std::int64_t renorm = 0;      ///< 1: softmax after the choice instead of before
  bool output_softmax = false;  ///< whether `softmax_result` is wanted; with renorm 1 there is none
  TensorView y;                 ///< out. Shape: [..., k], x's dtype
  TensorView expert_idx;        ///< out. Shape: [..., k] i32
  TensorView softmax_result;    ///< out with output_softmax. Shape: as x, f32
};
void infer(MoeGatingTopKSoftmaxV2Args& args);
std::uint64_t workspace_bytes(const MoeGatingTopKSoftmaxV2Args& args, const Device& device);
OperatorCost cost(const MoeGatingTopKSoftmaxV2Args& args);
void moe_gating_top_k_softmax_v2(StreamView stream, const MoeGatingTopKSoftmaxV2Args& args, const Call& how = {});

}  // namespace moecl::npu
