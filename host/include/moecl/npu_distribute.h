#ifndef MOECL_NPU_DISTRIBUTE_H
#define MOECL_NPU_DISTRIBUTE_H
// The collective operators: tokens to the ranks that own their experts, and back.
//
// Every rank of the communicator, which stands for group_ep, calls the same operator with its own tensors, on its own
// stream. The ranks first agree about the parameters and about who refuses its arguments: then every rank fails,
// nothing is enqueued and the group stays whole. The plan is one rank's own affair.
#include <moecl/npu.h>
#include <moecl/rank_group.h>

#ifdef __cplusplus
extern "C" {
#endif

/// How rows travel. All but `hierarchy`, server by server, are alike here.
typedef enum moecl_comm_alg {
  MOECL_COMM_ALG_DEFAULT = 0,
  MOECL_COMM_ALG_FULLMESH = 1,
  MOECL_COMM_ALG_FULLMESH_V1 = 2,
  MOECL_COMM_ALG_FULLMESH_V2 = 3,
  MOECL_COMM_ALG_HIERARCHY = 4
} moecl_comm_alg;

/// npu_moe_distribute_dispatch: tokens to the ranks of their experts, first version
typedef struct moecl_moe_distribute_dispatch_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor expert_ids;
  moecl_tensor scales;             ///< optional
  moecl_tensor x_active_mask;      ///< optional, reserved: not read
  moecl_tensor expert_scales;      ///< optional, reserved: not read
  const char* group_ep;            ///< name only: the communicator is the group; may be NULL
  int64_t ep_world_size;           ///< R, the communicator's size
  int64_t ep_rank_id;              ///< the communicator's rank
  int64_t moe_expert_num;          ///< E
  const char* group_tp;            ///< name only; may be NULL
  int64_t tp_world_size;           ///< 0 or 1
  int64_t tp_rank_id;              ///< 0
  int64_t expert_shard_type;       ///< 0: shared expert ranks come first
  int64_t shared_expert_num;       ///< divides shared_expert_rank_num
  int64_t shared_expert_rank_num;  ///< S, ranks of shared experts
  int64_t global_bs;               ///< G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t quant_mode;              ///< 0 none, 2 int8 for each token
  int64_t expert_token_nums_type;  ///< 0 cumulative, 1 counts
  moecl_tensor expand_x;           ///< out
  moecl_tensor dynamic_scales;     ///< out, with quant_mode 2
  moecl_tensor expand_idx;         ///< out: earlier pairs of this rank with the same expert
  moecl_tensor expert_token_nums;  ///< out
  moecl_tensor ep_recv_counts;     ///< out
  moecl_tensor tp_recv_counts;     ///< out, never written; with tp_world_size 1
} moecl_moe_distribute_dispatch_args;
moecl_status moecl_moe_distribute_dispatch_defaults(moecl_moe_distribute_dispatch_args* args);
moecl_status moecl_moe_distribute_dispatch_plan(moecl_communicator* communicator,
                                                moecl_moe_distribute_dispatch_args* args,
                                                uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_dispatch(moecl_communicator* communicator,
                                           const moecl_moe_distribute_dispatch_args* args, const moecl_call* call,
                                           uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                           struct _cl_event** out_event);

/// npu_moe_distribute_dispatch_v2: tokens to the ranks of their experts, in the order expert, source rank, token
typedef struct moecl_moe_distribute_dispatch_v2_args {
  uint64_t size_bytes;
  moecl_tensor x;
  moecl_tensor expert_ids;
  moecl_tensor scales;                   ///< optional
  moecl_tensor x_active_mask;            ///< optional
  moecl_tensor expert_scales;            ///< optional, for comm_alg hierarchy
  moecl_tensor elastic_info;             ///< optional, refused
  moecl_tensor performance_info;         ///< optional, refused
  const char* group_ep;                  ///< name only: the communicator is the group; may be NULL
  int64_t ep_world_size;                 ///< R, the communicator's size
  int64_t ep_rank_id;                    ///< the communicator's rank
  int64_t moe_expert_num;                ///< E
  const char* group_tp;                  ///< name only; may be NULL
  int64_t tp_world_size;                 ///< 0 or 1
  int64_t tp_rank_id;                    ///< 0
  int64_t expert_shard_type;             ///< 0: shared expert ranks come first
  int64_t shared_expert_num;             ///< divides shared_expert_rank_num
  int64_t shared_expert_rank_num;        ///< S, ranks of shared experts
  int64_t global_bs;                     ///< G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t quant_mode;                    ///< 0 none, 2 int8 for each token
  int64_t expert_token_nums_type;        ///< 0 cumulative, 1 counts
  int32_t comm_alg;                      ///< moecl_comm_alg
  int64_t zero_expert_num;               ///< their ids come after the E experts
  int64_t copy_expert_num;               ///< their ids come next
  int64_t const_expert_num;              ///< their ids come last
  int64_t ranks_per_server;              ///< of hierarchy; 0: all of them
  int32_t y_dtype;                       ///< moecl_dtype of expand_x, or 0
  int32_t x_dtype;                       ///< 0
  int32_t scales_dtype;                  ///< 0
  moecl_tensor expand_x;                 ///< out
  moecl_tensor dynamic_scales;           ///< out, with quant_mode 2
  moecl_tensor assist_info_for_combine;  ///< out: source rank, token, column of each row
  moecl_tensor expert_token_nums;        ///< out
  moecl_tensor ep_recv_counts;           ///< out
  moecl_tensor tp_recv_counts;           ///< out, never written; with tp_world_size 1
  moecl_tensor expand_scales;            ///< out, with hierarchy
} moecl_moe_distribute_dispatch_v2_args;
moecl_status moecl_moe_distribute_dispatch_v2_defaults(moecl_moe_distribute_dispatch_v2_args* args);
moecl_status moecl_moe_distribute_dispatch_v2_plan(moecl_communicator* communicator,
                                                   moecl_moe_distribute_dispatch_v2_args* args,
                                                   uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_dispatch_v2(moecl_communicator* communicator,
                                              const moecl_moe_distribute_dispatch_v2_args* args, const moecl_call* call,
                                              uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                              struct _cl_event** out_event);

/// npu_moe_distribute_combine: expert rows back to their tokens, first version
typedef struct moecl_moe_distribute_combine_args {
  uint64_t size_bytes;
  moecl_tensor expand_x;
  moecl_tensor expert_ids;      ///< as given to dispatch
  moecl_tensor expand_idx;      ///< of dispatch
  moecl_tensor ep_send_counts;  ///< ep_recv_counts of dispatch
  moecl_tensor expert_scales;   ///< the router's weights
  moecl_tensor tp_send_counts;  ///< optional, reserved: not read, as the next six
  moecl_tensor x_active_mask;
  moecl_tensor activation_scale;
  moecl_tensor weight_scale;
  moecl_tensor group_list;
  moecl_tensor expand_scales;
  moecl_tensor shared_expert_x;    ///< optional, added with weight 1
  const char* group_ep;            ///< name only: the communicator is the group; may be NULL
  int64_t ep_world_size;           ///< R, the communicator's size
  int64_t ep_rank_id;              ///< the communicator's rank
  int64_t moe_expert_num;          ///< E
  const char* group_tp;            ///< name only; may be NULL
  int64_t tp_world_size;           ///< 0 or 1
  int64_t tp_rank_id;              ///< 0
  int64_t expert_shard_type;       ///< 0: shared expert ranks come first
  int64_t shared_expert_num;       ///< divides shared_expert_rank_num
  int64_t shared_expert_rank_num;  ///< S, ranks of shared experts
  int64_t global_bs;               ///< G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t out_dtype;               ///< reserved
  int64_t comm_quant_mode;         ///< 0 none, 2 int8
  int64_t group_list_type;         ///< reserved
  moecl_tensor out;                ///< out
} moecl_moe_distribute_combine_args;
moecl_status moecl_moe_distribute_combine_defaults(moecl_moe_distribute_combine_args* args);
moecl_status moecl_moe_distribute_combine_plan(moecl_communicator* communicator,
                                               moecl_moe_distribute_combine_args* args, uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_combine(moecl_communicator* communicator,
                                          const moecl_moe_distribute_combine_args* args, const moecl_call* call,
                                          uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                          struct _cl_event** out_event);

/// npu_moe_distribute_combine_v2: expert rows back to their tokens, weighted and summed in column order
typedef struct moecl_moe_distribute_combine_v2_args {
  uint64_t size_bytes;
  moecl_tensor expand_x;
  moecl_tensor expert_ids;               ///< as given to dispatch
  moecl_tensor assist_info_for_combine;  ///< of dispatch
  moecl_tensor ep_send_counts;           ///< ep_recv_counts of dispatch
  moecl_tensor expert_scales;            ///< the router's weights
  moecl_tensor tp_send_counts;           ///< optional, reserved: not read
  moecl_tensor x_active_mask;            ///< optional, as given to dispatch
  moecl_tensor expand_scales;            ///< optional, for comm_alg hierarchy
  moecl_tensor shared_expert_x;          ///< optional, added with weight 1
  moecl_tensor elastic_info;             ///< optional, refused
  moecl_tensor ori_x;                    ///< optional, for copy and constant experts
  moecl_tensor const_expert_alpha_1;     ///< optional
  moecl_tensor const_expert_alpha_2;     ///< optional
  moecl_tensor const_expert_v;           ///< optional
  moecl_tensor performance_info;         ///< optional, refused
  const char* group_ep;                  ///< name only: the communicator is the group; may be NULL
  int64_t ep_world_size;                 ///< R, the communicator's size
  int64_t ep_rank_id;                    ///< the communicator's rank
  int64_t moe_expert_num;                ///< E
  const char* group_tp;                  ///< name only; may be NULL
  int64_t tp_world_size;                 ///< 0 or 1
  int64_t tp_rank_id;                    ///< 0
  int64_t expert_shard_type;             ///< 0: shared expert ranks come first
  int64_t shared_expert_num;             ///< divides shared_expert_rank_num
  int64_t shared_expert_rank_num;        ///< S, ranks of shared experts
  int64_t global_bs;                     ///< G, a multiple of R; 0: BS * R, the same BS everywhere
  int64_t comm_quant_mode;               ///< 0 none, 2 int8
  int32_t comm_alg;                      ///< moecl_comm_alg
  int64_t zero_expert_num;               ///< their ids come after the E experts
  int64_t copy_expert_num;               ///< their ids come next
  int64_t const_expert_num;              ///< their ids come last
  int64_t ranks_per_server;              ///< of hierarchy; 0: all of them
  moecl_tensor out;                      ///< out; inactive tokens are not written
} moecl_moe_distribute_combine_v2_args;
moecl_status moecl_moe_distribute_combine_v2_defaults(moecl_moe_distribute_combine_v2_args* args);
moecl_status moecl_moe_distribute_combine_v2_plan(moecl_communicator* communicator,
                                                  moecl_moe_distribute_combine_v2_args* args,
                                                  uint64_t* out_workspace_bytes);
moecl_status moecl_moe_distribute_combine_v2(moecl_communicator* communicator,
                                             const moecl_moe_distribute_combine_v2_args* args, const moecl_call* call,
                                             uint32_t num_wait_events, struct _cl_event* const* wait_events,
                                             struct _cl_event** out_event);

#ifdef __cplusplus
}
#endif
#endif
