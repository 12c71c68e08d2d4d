#pragma once
#include <moecl/npu_distribute.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

inline constexpr std::array<const char*, 4> row_code_types = {"none", "e2m1", "e1m2", "hif8"};

template <class A, class V>
void visit_group_parameters(A& a, V& visit) {
  visit.parameter("group_ep", a.group_ep, "name only: the communicator is the group");
  visit.parameter("ep_world_size", a.ep_world_size, "R, the communicator's size");
  visit.parameter("ep_rank_id", a.ep_rank_id, "the communicator's rank");
  visit.parameter("moe_expert_num", a.moe_expert_num, "E");
  visit.parameter("group_tp", a.group_tp, "name only");
  visit.parameter("tp_world_size", a.tp_world_size, "0 or 1");
  visit.parameter("tp_rank_id", a.tp_rank_id, "0");
  visit.parameter("expert_shard_type", a.expert_shard_type, "0: shared expert ranks come first");
  visit.parameter("shared_expert_num", a.shared_expert_num, "divides shared_expert_rank_num");
  visit.parameter("shared_expert_rank_num", a.shared_expert_rank_num, "S, ranks of shared experts");
  visit.parameter("global_bs", a.global_bs, "G, a multiple of R; 0: BS * R, the same BS everywhere");
}
template <class A, class V>
void visit_v2_parameters(A& a, V& visit) {
  visit.choice(
      "comm_alg", a.comm_alg,
      "how rows travel; all but hierarchy (a token crosses to a server once, and its sum comes back) are alike",
      std::array{"", "fullmesh", "fullmesh_v1", "fullmesh_v2", "hierarchy"});
  visit.parameter("zero_expert_num", a.zero_expert_num, "their ids come after the E experts");
  visit.parameter("copy_expert_num", a.copy_expert_num, "their ids come next");
  visit.parameter("const_expert_num", a.const_expert_num, "their ids come last");
  visit.parameter("ranks_per_server", a.ranks_per_server, "of hierarchy; 0: as the nodes of the group");
}
template <class A, class V>
void visit_dispatch_inputs(A& a, V& visit) {
  visit.input("x", a.x, "[BS, H] bf16, f16 or f32; of quant_mode 0 also u8 or i8, codes, and i32, eight int4");
  visit.input("expert_ids", a.expert_ids, "[BS, K] i32");
  visit.input(
      "scales", a.scales,
      "optional [shared_expert_num + E, H] f32, without shared ranks [E, H]: smooth (2, 3); 1 also [H] or [1]; of "
      "codes [BS], [BS, S] f32 or [BS, S] u8");
}
template <class A, class V>
void visit_dispatch_parameters(A& a, V& visit) {
  visit_group_parameters(a, visit);
  visit.parameter(
      "quant_mode", a.quant_mode,
      "0 none, 1 static int8 or HiF8, 2 by row int8 or fp8, 3 fp8 by 128 columns, 4 MX fp8 or fp4, 5 MX fp8 "
      "with amax at least 1e-4");
  visit.parameter("expert_token_nums_type", a.expert_token_nums_type, "0 cumulative, 1 counts");
}
template <class A, class V>
void visit_dispatched_rows(A& a, V& visit) {
  visit.output("expand_x", a.expand_x, "[A, H], x's dtype, i8, or u8: other codes, of fp4 [A, H / 2]");
  visit.output(
      "dynamic_scales", a.dynamic_scales,
      "[A] f32; 3: [A, ceil(H / 128)]; 4, 5: [A, 2 * ceil(H / 64)] u8; of codes as their scales; not with 0 of "
      "floats and 1");
}
template <class A, class V>
void visit_dispatched_counts(A& a, V& visit) {
  visit.output("expert_token_nums", a.expert_token_nums, "[nl] i64");
  visit.output("ep_recv_counts", a.ep_recv_counts, "[nl * R] i32, cumulative over expert, source rank");
  visit.output("tp_recv_counts", a.tp_recv_counts, "[1] i32, never written; with tp_world_size 1");
}
template <class A, class V>
void visit_combine_inputs(A& a, V& visit) {
  visit.input("ep_send_counts", a.ep_send_counts, "[nl * R] i32: ep_recv_counts of dispatch");
  visit.input("expert_scales", a.expert_scales, "[BS, K] f32: the router's weights");
  visit.input("tp_send_counts", a.tp_send_counts, "optional, reserved: not read");
}

template <>
struct Describe<MoeDistributeDispatchV2Args> {
  static constexpr const char
      *name = "npu_moe_distribute_dispatch_v2",
      *summary = "tokens to the ranks of their experts, in the order expert, source rank, token",
      *rounding =
          "quant_mode 2: x * (largest / amax), scale 1 / (largest / amax); 3: the same product, "
          "scale amax * (1 / largest); halves to even, of HiF8 away from zero";
  static constexpr std::array<Refusal, 3> refused = {
      {{"tp_world_size above 1", "reserved upstream"},
       {"elastic_info, performance_info", "groups do not shrink; a trace tells the times"},
       {"hierarchy with shared or special experts", "the operator has neither there"}}};
  static constexpr auto run = &moe_distribute_dispatch_v2;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_dispatch_inputs(a, visit);
    visit.input("x_active_mask", a.x_active_mask, "optional [BS] bool, true first, or [BS, K]");
    visit.input("expert_scales", a.expert_scales, "optional [BS, K] f32; comm_alg hierarchy needs it");
    visit.input("elastic_info", a.elastic_info, "optional, refused");
    visit.input("performance_info", a.performance_info, "optional, refused");
    visit_dispatch_parameters(a, visit);
    visit_v2_parameters(a, visit);
    visit.parameter("y_dtype", a.y_dtype,
                    "what rows become: i8, f8_e4m3, f8_e5m2, u8 with y_codes; none: by quant_mode");
    visit.parameter("x_dtype", a.x_dtype, "refused");
    visit.parameter("scales_dtype", a.scales_dtype, "refused");
    visit_dispatched_rows(a, visit);
    visit.output("assist_info_for_combine", a.assist_info_for_combine,
                 "[max(BS * K, 128 * A)] i32: source rank, token, column of each row");
    visit_dispatched_counts(a, visit);
    visit.output("expand_scales", a.expand_scales, "[A] f32; with expert_scales");
    visit.choice("y_codes", a.y_codes, "what rows of y_dtype u8 are", row_code_types);
  }
};

template <>
struct Describe<MoeDistributeDispatchArgs> {
  static constexpr const char *name = "npu_moe_distribute_dispatch",
                              *summary = "the first version of npu_moe_distribute_dispatch_v2",
                              *rounding = Describe<MoeDistributeDispatchV2Args>::rounding;
  static constexpr std::array<Refusal, 1> refused = {{{"tp_world_size above 1", "reserved upstream"}}};
  static constexpr auto run = &moe_distribute_dispatch;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_dispatch_inputs(a, visit);
    visit.input("x_active_mask", a.x_active_mask, "optional, reserved: not read");
    visit.input("expert_scales", a.expert_scales, "optional [BS, K] f32");
    visit_dispatch_parameters(a, visit);
    visit_dispatched_rows(a, visit);
    visit.output("expand_idx", a.expand_idx, "[BS * K] i32: earlier pairs of this rank with the same expert");
    visit_dispatched_counts(a, visit);
    visit.output("expand_scales", a.expand_scales, "[A] f32; with expert_scales");
  }
};

template <>
struct Describe<MoeDistributeCombineV2Args> {
  static constexpr const char
      *name = "npu_moe_distribute_combine_v2",
      *summary = "expert rows back to their tokens, weighted and summed in column order",
      *rounding =
          "f32, multiply then add, once to the rows' dtype; comm_quant_mode 2: amax * (1 / 127) "
          "for 8 elements, through f16; 3, 4: MX of scale_alg 0; hierarchy: each server's sum is "
          "rounded too, or quantized, experts in ascending order";
  static constexpr std::array<Refusal, 3> refused = {
      {{"comm_quant_mode 2 with f32 rows", "the operator has none"},
       {"tp_world_size above 1", "reserved upstream"},
       {"elastic_info, performance_info", "groups do not shrink; a trace tells the times"}}};
  static constexpr auto run = &moe_distribute_combine_v2;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("expand_x", a.expand_x, "[A, H] bf16, f16 or f32");
    visit.input("expert_ids", a.expert_ids, "[BS, K] i32, as given to dispatch");
    visit.input("assist_info_for_combine", a.assist_info_for_combine, "[3 * rows or more] i32, of dispatch");
    visit_combine_inputs(a, visit);
    visit.input("x_active_mask", a.x_active_mask, "optional, as given to dispatch");
    visit.input("expand_scales", a.expand_scales, "optional [A] f32, for comm_alg hierarchy");
    visit.input("shared_expert_x", a.shared_expert_x, "optional [BS, H] or [a, b, H], added with weight 1");
    visit.input("elastic_info", a.elastic_info, "optional, refused");
    visit.input("ori_x", a.ori_x, "optional [BS, H], for copy and constant experts");
    visit.input("const_expert_alpha_1", a.const_expert_alpha_1, "optional [const_expert_num, H] or [const_expert_num]");
    visit.input("const_expert_alpha_2", a.const_expert_alpha_2, "optional [const_expert_num, H] or [const_expert_num]");
    visit.input("const_expert_v", a.const_expert_v, "optional [const_expert_num, H]");
    visit.input("performance_info", a.performance_info, "optional, refused");
    visit_group_parameters(a, visit);
    visit.parameter("comm_quant_mode", a.comm_quant_mode, "0 none, 2 int8, 3 MX e5m2, 4 MX e4m3");
    visit_v2_parameters(a, visit);
    visit.output("out", a.out, "[BS, H], the rows' dtype; inactive tokens are not written");
  }
};

template <>
struct Describe<MoeDistributeCombineArgs> {
  static constexpr const char
      *name = "npu_moe_distribute_combine",
      *summary = "the first version of npu_moe_distribute_combine_v2",
      *rounding =
          "f32, multiply then add, once to the rows' dtype; comm_quant_mode 2: amax * (1 / 127) "
          "for 8 elements, through f16; 3, 4: MX of scale_alg 0";
  static constexpr std::array<Refusal, 2> refused = {
      {{"comm_quant_mode 2 with f32 rows", "the operator has none"}, {"tp_world_size above 1", "reserved upstream"}}};
  static constexpr auto run = &moe_distribute_combine;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("expand_x", a.expand_x, "[A, H] bf16, f16 or f32");
    visit.input("expert_ids", a.expert_ids, "[BS, K] i32, as given to dispatch");
    visit.input("expand_idx", a.expand_idx, "[BS * K] i32, of dispatch");
    visit_combine_inputs(a, visit);
    visit.input("x_active_mask", a.x_active_mask, "optional, reserved: not read");
    visit.input("activation_scale", a.activation_scale, "optional, reserved: not read");
    visit.input("weight_scale", a.weight_scale, "optional, reserved: not read");
    visit.input("group_list", a.group_list, "optional, reserved: not read");
    visit.input("expand_scales", a.expand_scales, "optional, reserved: not read");
    visit.input("shared_expert_x", a.shared_expert_x, "optional [BS, H] or [a, b, H], added with weight 1");
    visit_group_parameters(a, visit);
    visit.parameter("out_dtype", a.out_dtype, "reserved");
    visit.parameter("comm_quant_mode", a.comm_quant_mode, "0 none, 2 int8, 3 MX e5m2, 4 MX e4m3");
    visit.parameter("group_list_type", a.group_list_type, "reserved");
    visit.output("out", a.out, "[BS, H], the rows' dtype");
  }
};

}  // namespace moecl::npu
