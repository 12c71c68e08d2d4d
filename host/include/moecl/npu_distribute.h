#ifndef MOECL_NPU_DISTRIBUTE_H
#define MOECL_NPU_DISTRIBUTE_H
// Written by `moecl op --header distribute`; a test compares it.
//
// The collective operators: tokens to the ranks that own their experts, and back. Every rank of the
// communicator, which stands for group_ep, calls the same operator with its own tensors, on its own stream.
// The ranks first agree about the parameters and about who refuses its arguments: then every rank fails,
// nothing is enqueued and the group stays whole. The plan is one rank's own affair.
#include <moecl/npu.h>
#include <moecl/rank_group.h>

// clang-format off
#ifdef __cplusplus
extern "C" {
#endif

/// npu_moe_distribute_dispatch: the first version of npu_moe_distribute_dispatch_v2
typedef struct moecl_moe_distribute_dispatch_args {
  uint64_t size_bytes;
  /// [BS, H] bf16, f16 or f32; of quant_mode 0 also u8 or i8, codes, and i32, eight int4
  moecl_tensor x;
  /// [BS, K] i32
  moecl_tensor expert_ids;
  /// optional [shared_expert_num + E, H] f32, without shared ranks [E, H]: smooth (2, 3); 1 also [H] or [1]; of codes
  /// [BS], [BS, S] f32 or [BS, S] u8
  moecl_tensor scales;
  /// optional, reserved: not read
  moecl_tensor x_active_mask;
  /// optional [BS, K] f32
  moecl_tensor expert_scales;
  /// name only: the communicator is the group; NULL: empty
  const char* group_ep;
  /// R, the communicator's size
  int64_t ep_world_size;
  /// the communicator's rank
  int64_t ep_rank_id;
  /// E
  int64_t moe_expert_num;
  /// name only; NULL: empty
  const char* group_tp;
  /// 0 or 1
  int64_t tp_world_size;
  /// 0
  int64_t tp_rank_id;
  /// 0: shared expert ranks come first
  int64_t expert_shard_type;
  /// divides shared_expert_rank_num
  int64_t shared_expert_num;
  /// S, ranks of shared experts
  int64_t shared_expert_rank_num;
  /// G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t global_bs;
  /// 0 none, 1 static int8 or HiF8, 2 by row int8 or fp8, 3 fp8 by 128 columns, 4 MX fp8 or fp4, 5 MX fp8 with amax at
  /// least 1e-4
  int64_t quant_mode;
  /// 0 cumulative, 1 counts
  int64_t expert_token_nums_type;
  /// out: [A, H], x's dtype, i8, or u8: other codes, of fp4 [A, H / 2]
  moecl_tensor expand_x;
  /// out: [A] f32; 3: [A, ceil(H / 128)]; 4, 5: [A, 2 * ceil(H / 64)] u8; of codes as their scales; not with 0 of
  /// floats and 1
  moecl_tensor dynamic_scales;
  /// out: [BS * K] i32: earlier pairs of this rank with the same expert
  moecl_tensor expand_idx;
  /// out: [nl] i64
  moecl_tensor expert_token_nums;
  /// out: [nl * R] i32, cumulative over expert, source rank
  moecl_tensor ep_recv_counts;
  /// out: [1] i32, never written; with tp_world_size 1
  moecl_tensor tp_recv_counts;
  /// out: [A] f32; with expert_scales
  moecl_tensor expand_scales;
} moecl_moe_distribute_dispatch_args;
moecl_status moecl_moe_distribute_dispatch_defaults(moecl_moe_distribute_dispatch_args* args);
moecl_status moecl_moe_distribute_dispatch_plan(
    moecl_communicator* communicator, moecl_moe_distribute_dispatch_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_dispatch(
    moecl_communicator* communicator, const moecl_moe_distribute_dispatch_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_distribute_dispatch_v2: tokens to the ranks of their experts, in the order expert, source rank, token
typedef struct moecl_moe_distribute_dispatch_v2_args {
  uint64_t size_bytes;
  /// [BS, H] bf16, f16 or f32; of quant_mode 0 also u8 or i8, codes, and i32, eight int4
  moecl_tensor x;
  /// [BS, K] i32
  moecl_tensor expert_ids;
  /// optional [shared_expert_num + E, H] f32, without shared ranks [E, H]: smooth (2, 3); 1 also [H] or [1]; of codes
  /// [BS], [BS, S] f32 or [BS, S] u8
  moecl_tensor scales;
  /// optional [BS] bool, true first, or [BS, K]
  moecl_tensor x_active_mask;
  /// optional [BS, K] f32; comm_alg hierarchy needs it
  moecl_tensor expert_scales;
  /// optional, refused
  moecl_tensor elastic_info;
  /// optional, refused
  moecl_tensor performance_info;
  /// name only: the communicator is the group; NULL: empty
  const char* group_ep;
  /// R, the communicator's size
  int64_t ep_world_size;
  /// the communicator's rank
  int64_t ep_rank_id;
  /// E
  int64_t moe_expert_num;
  /// name only; NULL: empty
  const char* group_tp;
  /// 0 or 1
  int64_t tp_world_size;
  /// 0
  int64_t tp_rank_id;
  /// 0: shared expert ranks come first
  int64_t expert_shard_type;
  /// divides shared_expert_rank_num
  int64_t shared_expert_num;
  /// S, ranks of shared experts
  int64_t shared_expert_rank_num;
  /// G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t global_bs;
  /// 0 none, 1 static int8 or HiF8, 2 by row int8 or fp8, 3 fp8 by 128 columns, 4 MX fp8 or fp4, 5 MX fp8 with amax at
  /// least 1e-4
  int64_t quant_mode;
  /// 0 cumulative, 1 counts
  int64_t expert_token_nums_type;
  /// how rows travel; all but hierarchy (a token crosses to a server once, and its sum comes back) are alike: 0
  /// default, 1 fullmesh, 2 fullmesh_v1, 3 fullmesh_v2, 4 hierarchy
  int32_t comm_alg;
  /// their ids come after the E experts
  int64_t zero_expert_num;
  /// their ids come next
  int64_t copy_expert_num;
  /// their ids come last
  int64_t const_expert_num;
  /// of hierarchy; 0: as the nodes of the group
  int64_t ranks_per_server;
  /// what rows become: i8, f8_e4m3, f8_e5m2, u8 with y_codes; none: by quant_mode; a moecl_dtype, 0: none
  int32_t y_dtype;
  /// refused; a moecl_dtype, 0: none
  int32_t x_dtype;
  /// refused; a moecl_dtype, 0: none
  int32_t scales_dtype;
  /// out: [A, H], x's dtype, i8, or u8: other codes, of fp4 [A, H / 2]
  moecl_tensor expand_x;
  /// out: [A] f32; 3: [A, ceil(H / 128)]; 4, 5: [A, 2 * ceil(H / 64)] u8; of codes as their scales; not with 0 of
  /// floats and 1
  moecl_tensor dynamic_scales;
  /// out: [max(BS * K, 128 * A)] i32: source rank, token, column of each row
  moecl_tensor assist_info_for_combine;
  /// out: [nl] i64
  moecl_tensor expert_token_nums;
  /// out: [nl * R] i32, cumulative over expert, source rank
  moecl_tensor ep_recv_counts;
  /// out: [1] i32, never written; with tp_world_size 1
  moecl_tensor tp_recv_counts;
  /// out: [A] f32; with expert_scales
  moecl_tensor expand_scales;
  /// what rows of y_dtype u8 are: 0 none, 1 e2m1, 2 e1m2, 3 hif8
  int32_t y_codes;
} moecl_moe_distribute_dispatch_v2_args;
moecl_status moecl_moe_distribute_dispatch_v2_defaults(moecl_moe_distribute_dispatch_v2_args* args);
moecl_status moecl_moe_distribute_dispatch_v2_plan(
    moecl_communicator* communicator, moecl_moe_distribute_dispatch_v2_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_dispatch_v2(
    moecl_communicator* communicator, const moecl_moe_distribute_dispatch_v2_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_distribute_combine: the first version of npu_moe_distribute_combine_v2
typedef struct moecl_moe_distribute_combine_args {
  uint64_t size_bytes;
  /// [A, H] bf16, f16 or f32
  moecl_tensor expand_x;
  /// [BS, K] i32, as given to dispatch
  moecl_tensor expert_ids;
  /// [BS * K] i32, of dispatch
  moecl_tensor expand_idx;
  /// [nl * R] i32: ep_recv_counts of dispatch
  moecl_tensor ep_send_counts;
  /// [BS, K] f32: the router's weights
  moecl_tensor expert_scales;
  /// optional, reserved: not read
  moecl_tensor tp_send_counts;
  /// optional, reserved: not read
  moecl_tensor x_active_mask;
  /// optional, reserved: not read
  moecl_tensor activation_scale;
  /// optional, reserved: not read
  moecl_tensor weight_scale;
  /// optional, reserved: not read
  moecl_tensor group_list;
  /// optional, reserved: not read
  moecl_tensor expand_scales;
  /// optional [BS, H] or [a, b, H], added with weight 1
  moecl_tensor shared_expert_x;
  /// name only: the communicator is the group; NULL: empty
  const char* group_ep;
  /// R, the communicator's size
  int64_t ep_world_size;
  /// the communicator's rank
  int64_t ep_rank_id;
  /// E
  int64_t moe_expert_num;
  /// name only; NULL: empty
  const char* group_tp;
  /// 0 or 1
  int64_t tp_world_size;
  /// 0
  int64_t tp_rank_id;
  /// 0: shared expert ranks come first
  int64_t expert_shard_type;
  /// divides shared_expert_rank_num
  int64_t shared_expert_num;
  /// S, ranks of shared experts
  int64_t shared_expert_rank_num;
  /// G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t global_bs;
  /// reserved
  int64_t out_dtype;
  /// 0 none, 2 int8, 3 MX e5m2, 4 MX e4m3
  int64_t comm_quant_mode;
  /// reserved
  int64_t group_list_type;
  /// out: [BS, H], the rows' dtype
  moecl_tensor out;
} moecl_moe_distribute_combine_args;
moecl_status moecl_moe_distribute_combine_defaults(moecl_moe_distribute_combine_args* args);
moecl_status moecl_moe_distribute_combine_plan(
    moecl_communicator* communicator, moecl_moe_distribute_combine_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_combine(
    moecl_communicator* communicator, const moecl_moe_distribute_combine_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

/// npu_moe_distribute_combine_v2: expert rows back to their tokens, weighted and summed in column order
typedef struct moecl_moe_distribute_combine_v2_args {
  uint64_t size_bytes;
  /// [A, H] bf16, f16 or f32
  moecl_tensor expand_x;
  /// [BS, K] i32, as given to dispatch
  moecl_tensor expert_ids;
  /// [3 * rows or more] i32, of dispatch
  moecl_tensor assist_info_for_combine;
  /// [nl * R] i32: ep_recv_counts of dispatch
  moecl_tensor ep_send_counts;
  /// [BS, K] f32: the router's weights
  moecl_tensor expert_scales;
  /// optional, reserved: not read
  moecl_tensor tp_send_counts;
  /// optional, as given to dispatch
  moecl_tensor x_active_mask;
  /// optional [A] f32, for comm_alg hierarchy
  moecl_tensor expand_scales;
  /// optional [BS, H] or [a, b, H], added with weight 1
  moecl_tensor shared_expert_x;
  /// optional, refused
  moecl_tensor elastic_info;
  /// optional [BS, H], for copy and constant experts
  moecl_tensor ori_x;
  /// optional [const_expert_num, H] or [const_expert_num]
  moecl_tensor const_expert_alpha_1;
  /// optional [const_expert_num, H] or [const_expert_num]
  moecl_tensor const_expert_alpha_2;
  /// optional [const_expert_num, H]
  moecl_tensor const_expert_v;
  /// optional, refused
  moecl_tensor performance_info;
  /// name only: the communicator is the group; NULL: empty
  const char* group_ep;
  /// R, the communicator's size
  int64_t ep_world_size;
  /// the communicator's rank
  int64_t ep_rank_id;
  /// E
  int64_t moe_expert_num;
  /// name only; NULL: empty
  const char* group_tp;
  /// 0 or 1
  int64_t tp_world_size;
  /// 0
  int64_t tp_rank_id;
  /// 0: shared expert ranks come first
  int64_t expert_shard_type;
  /// divides shared_expert_rank_num
  int64_t shared_expert_num;
  /// S, ranks of shared experts
  int64_t shared_expert_rank_num;
  /// G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t global_bs;
  /// 0 none, 2 int8, 3 MX e5m2, 4 MX e4m3
  int64_t comm_quant_mode;
  /// how rows travel; all but hierarchy (a token crosses to a server once, and its sum comes back) are alike: 0
  /// default, 1 fullmesh, 2 fullmesh_v1, 3 fullmesh_v2, 4 hierarchy
  int32_t comm_alg;
  /// their ids come after the E experts
  int64_t zero_expert_num;
  /// their ids come next
  int64_t copy_expert_num;
  /// their ids come last
  int64_t const_expert_num;
  /// of hierarchy; 0: as the nodes of the group
  int64_t ranks_per_server;
  /// out: [BS, H], the rows' dtype; inactive tokens are not written
  moecl_tensor out;
} moecl_moe_distribute_combine_v2_args;
moecl_status moecl_moe_distribute_combine_v2_defaults(moecl_moe_distribute_combine_v2_args* args);
moecl_status moecl_moe_distribute_combine_v2_plan(
    moecl_communicator* communicator, moecl_moe_distribute_combine_v2_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_combine_v2(
    moecl_communicator* communicator, const moecl_moe_distribute_combine_v2_args* args, const moecl_call* call,
    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
// clang-format on
#endif
