#pragma once
#include <moecl/npu_gating.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

template <>
struct Describe<MoeGatingTopKArgs> {
  static constexpr const char *name = "npu_moe_gating_top_k", *summary = "scores, groups, the best k experts, weights",
                              *rounding = "f32 arithmetic, one rounding to x's dtype";
  static constexpr std::array<Refusal, 1> refused = {
      {{"norm_type 2", "sqrt(softplus) belongs to the hash-routed form, which needs its token tables as well"}}};
  static constexpr auto run = &moe_gating_top_k;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[N, E] or [A, B, E] f32, f16 or bf16; E at most 2048");
    visit.parameter("k", a.k, "experts a token");
    visit.input("bias", a.bias, "optional [E], a float type: added for the choice only");
    visit.parameter("k_group", a.k_group, "groups that are kept");
    visit.parameter("group_count", a.group_count, "equal runs of more than 2 experts; 1: no groups");
    visit.parameter("group_select_mode", a.group_select_mode, "a group's score: 0 its maximum, 1 its best two summed");
    visit.parameter("renorm", a.renorm,
                    "1: softmax weights are divided by their sum + eps, as sigmoid ones always are");
    visit.parameter("norm_type", a.norm_type, "0 softmax, 1 sigmoid");
    visit.parameter("out_flag", a.out_flag, "whether `out` is wanted");
    visit.parameter("routed_scaling_factor", a.routed_scaling_factor, "multiplies the weights");
    visit.parameter("eps", a.eps, "added to the sum");
    visit.output("y", a.y, "[..., k], x's dtype: weights");
    visit.output("expert_idx", a.expert_idx, "[..., k] i32");
    visit.output("out", a.out, "as x, f32: scores of all experts without bias; with out_flag");
  }
};

template <>
struct Describe<MoeGatingTopKSoftmaxArgs> {
  static constexpr const char *name = "npu_moe_gating_top_k_softmax", *summary = "softmax, then the best k experts",
                              *rounding = "f32 arithmetic, one rounding to x's dtype";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_gating_top_k_softmax;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[N, E] or [A, B, E] f32, f16 or bf16; E at most 1024");
    visit.input("finished", a.finished, "optional, boolean or u8 for each token: its expert_idx become E");
    visit.parameter("k", a.k, "experts a token");
    visit.output("y", a.y, "[..., k], x's dtype: weights");
    visit.output("expert_idx", a.expert_idx, "[..., k] i32");
    visit.output("row_idx", a.row_idx, "[..., k] i32: k * N + n");
  }
};

template <>
struct Describe<MoeGatingTopKSoftmaxV2Args> {
  static constexpr const char *name = "npu_moe_gating_top_k_softmax_v2",
                              *summary = "the best k experts, softmax before or after the choice",
                              *rounding = "f32 arithmetic, one rounding to x's dtype";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_gating_top_k_softmax_v2;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[N, E] or [A, B, E] f32, f16 or bf16; E at most 1024");
    visit.parameter("k", a.k, "experts a token");
    visit.input("finished", a.finished, "optional, boolean or u8 for each token: its expert_idx become E");
    visit.parameter("renorm", a.renorm, "1: softmax over the chosen k instead of over all");
    visit.parameter("output_softmax", a.output_softmax,
                    "whether softmax_result is wanted; with renorm 1 there is none");
    visit.output("y", a.y, "[..., k], x's dtype: weights");
    visit.output("expert_idx", a.expert_idx, "[..., k] i32");
    visit.output("softmax_result", a.softmax_result, "as x, f32; with output_softmax");
  }
};

}  // namespace moecl::npu
