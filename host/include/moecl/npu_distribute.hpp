#pragma once
#include <moecl/communicator.hpp>
#include <moecl/npu.hpp>

#include <optional>
#include <string>

/// The collective operators: tokens to the ranks that own their experts, and back.
///
/// Every rank of the communicator, which stands for group_ep, calls the same operator with its own tensors, on the
/// communicator's stream. The ranks first agree about the parameters and about who refuses its arguments: then every
/// rank throws, nothing is enqueued and the group stays whole. Rows that exist travel, and no others: how many there
/// are a thread of the rank reads, never the one that calls. Each byte: dispatch/STRATEGIES.md.
/// The ranks [0, S) with S = shared_expert_rank_num own a shared expert each, the others
/// nl = moe_expert_num / (ranks - S) experts each. G = global_bs, or BS * ranks with global_bs 0, which needs the same
/// BS everywhere; no rank has more than Bmax = G / ranks tokens.
/// A = G * min(nl, K) rows, on a shared rank Bmax * ceil(ranks / (S / shared_expert_num)).
/// Strict mode reports ids out of range, an expert twice in a token's row, a 1-D mask that is not all true, then all
/// false, and (combine) row information that is not of the dispatch with these ids and this mask; compatible mode
/// leaves such pairs out and counts the trues. All ranks use the same mode, with or without a fault word.
/// Errors: as npu.hpp and communicator.hpp
namespace moecl::npu {

/// How rows travel. All but `hierarchy` are alike here: with it a token crosses to a server once, and the server's sum
/// comes back.
enum class CommAlg : std::uint8_t { by_default, fullmesh, fullmesh_v1, fullmesh_v2, hierarchy };

/// What rows of u8 are that no dtype names: fp4 codes two to a byte, element 0 in the low nibble, or HiFloat8.
enum class RowCodeType : std::uint8_t { none, e2m1, e1m2, hif8 };

/// The group and its experts: the same in all four operators.
struct MoeDistributeGroup {
  std::string group_ep;                     ///< name only: the communicator is the group
  std::int64_t ep_world_size = 0;           ///< the communicator's size
  std::int64_t ep_rank_id = 0;              ///< the communicator's rank
  std::int64_t moe_expert_num = 0;          ///< E
  std::string group_tp;                     ///< name only
  std::int64_t tp_world_size = 0;           ///< 0 or 1
  std::int64_t tp_rank_id = 0;              ///< 0
  std::int64_t expert_shard_type = 0;       ///< 0: shared expert ranks come first
  std::int64_t shared_expert_num = 1;       ///< divides shared_expert_rank_num
  std::int64_t shared_expert_rank_num = 0;  ///< S
  std::int64_t global_bs = 0;               ///< G
};

/// What the second versions have more: special experts, whose ids come after the E others, and servers.
struct MoeDistributeV2 {
  TensorView elastic_info, performance_info;  ///< refused
  CommAlg comm_alg = CommAlg::by_default;
  std::int64_t zero_expert_num = 0;   ///< Range: 0 or more
  std::int64_t copy_expert_num = 0;   ///< Range: 0 or more
  std::int64_t const_expert_num = 0;  ///< Range: 0 or more
  std::int64_t ranks_per_server = 0;  ///< of hierarchy; divides the ranks; 0: the group's. moecl's own
};

/// Both versions of dispatch. Rows in the order local expert, source rank, token. Halves go to even, of HiFloat8 away
/// from zero; a row or group of zeros has scale 0 and codes 0.
///
/// quant_mode 0: rows as they are, codes with their scales, or with y_codes hif8 the nearest numbers of it.
/// 1, static: int8 round(x * scales) in [-128, 127], or HiFloat8. 2, by row: x * (largest / amax), scale
/// 1 / (largest / amax); int8, with y_dtype fp8. 3, by 128 columns: fp8 x * (largest / amax), scale
/// amax * (1 / largest). 4: MX blocks as npu_dynamic_mx_quant with scale_alg 0, fp8 or fp4. 5: MX blocks of fp8 with
/// scale 2^ceil(log2(max(amax, 1e-4) / largest)), 0 for zeros. fp8 is e4m3 unless y_dtype says e5m2. Source:
/// moe_distribute_dispatch_v2 of ops-transformer, its document and its kernel for Ascend 950
struct MoeDistributeDispatchRows : MoeDistributeGroup {
  /// Shape: [BS, H] bf16, f16 or f32; of quant_mode 0 also u8 and i8, codes, or i32, eight int4; rows may be strided
  TensorView x;
  TensorView expert_ids;  ///< Shape: [BS, K] i32
  /// optional. quant_mode 2 and 3: smooth, [shared_expert_num + E, H] f32, without shared ranks [E, H]; 1: that, [H] or
  /// [1], of HiFloat8 [1]; of codes their own, [BS] or [BS, S] f32, or [BS, S] u8
  TensorView scales;
  /// optional, not read by the first version. Shape: [BS] bool, true for the first tokens; or [BS, K]
  TensorView x_active_mask;
  TensorView expert_scales;                 ///< optional, with comm_alg hierarchy needed. Shape: [BS, K] f32
  std::int64_t quant_mode = 0;              ///< Range: [0, 5]
  std::int64_t expert_token_nums_type = 1;  ///< 0 cumulative, 1 counts
  TensorView expand_x;  ///< out. Shape: [A, H], x's dtype, i8, or u8 of other codes, [A, H / 2] of fp4
  /// out, where scales are not given. Shape: [A] f32; of 128 columns [A, ceil(H / 128)]; MX [A, 2 * ceil(H / 64)] u8;
  /// of codes as their scales
  TensorView dynamic_scales;
  TensorView expert_token_nums;  ///< out. Shape: [nl] i64, on a shared rank [1]
  TensorView ep_recv_counts;     ///< out. Shape: [nl * ranks] i32: cumulative over expert, source rank
  TensorView tp_recv_counts;     ///< out, tp_world_size 1. Shape: [1] i32; never written
};

/// Ids from moe_expert_num on are zero, copy and constant experts, which get no rows.
///
/// Source: npu_moe_distribute_dispatch_v2
struct MoeDistributeDispatchV2Args : MoeDistributeDispatchRows, MoeDistributeV2 {
  std::optional<DType> y_dtype;                ///< that of expand_x, f8_e4m3, f8_e5m2, u8 with y_codes, or none
  std::optional<DType> x_dtype, scales_dtype;  ///< refused
  TensorView assist_info_for_combine;          ///< out. Shape: [max(BS * K, 128 * A)] i32: {rank, token, column} a row
  TensorView expand_scales;                 ///< out, with expert_scales. Shape: [A] f32: the weight that each row has
  RowCodeType y_codes = RowCodeType::none;  ///< with y_dtype u8. moecl's own
};
void infer(MoeDistributeDispatchV2Args& args);
std::uint64_t workspace_bytes(const MoeDistributeDispatchV2Args& args, const Device& device);
OperatorCost cost(const MoeDistributeDispatchV2Args& args);
void moe_distribute_dispatch_v2(Communicator& ranks, const MoeDistributeDispatchV2Args& args, const Call& how = {});

/// The first version: no special experts, no mask, and slot numbers instead of the assist info.
///
/// Source: npu_moe_distribute_dispatch
struct MoeDistributeDispatchArgs : MoeDistributeDispatchRows {
  TensorView expand_idx;     ///< out. Shape: [BS * K] i32: earlier pairs of the rank with the same expert
  TensorView expand_scales;  ///< out, with expert_scales. Shape: [A] f32: the weight that each row has
};
void infer(MoeDistributeDispatchArgs& args);
std::uint64_t workspace_bytes(const MoeDistributeDispatchArgs& args, const Device& device);
OperatorCost cost(const MoeDistributeDispatchArgs& args);
void moe_distribute_dispatch(Communicator& ranks, const MoeDistributeDispatchArgs& args, const Call& how = {});

/// Both versions of combine. out[t] = sum over k of expert_scales[t, k] * row(t, k), then the shared experts' rows,
/// then shared_expert_x[t]; f32, in that order, multiplied and added separately, rounded once.
///
/// comm_quant_mode 2: each 8 elements travel as int8 with scale amax * (1 / 127), rounded to f16 and then to int8,
/// scale and product rounded to the rows' dtype. 3 and 4: MX blocks of e5m2 and e4m3, scale
/// 2^(floor(log2(amax)) - that of largest); the rows have these numbers, in their own dtype.
struct MoeDistributeCombineRows : MoeDistributeGroup {
  TensorView expand_x;               ///< Shape: [A, H] bf16, f16 or f32; as dispatched
  TensorView expert_ids;             ///< Shape: [BS, K] i32: as given to dispatch
  TensorView ep_send_counts;         ///< Shape: [nl * ranks] i32: ep_recv_counts of dispatch
  TensorView expert_scales;          ///< Shape: [BS, K] f32: the router's weights
  TensorView tp_send_counts;         ///< optional, reserved: not read
  TensorView x_active_mask;          ///< optional, not read by the first version. Shape: as given to dispatch
  TensorView expand_scales;          ///< with comm_alg hierarchy. Shape: [A] f32, of dispatch
  TensorView shared_expert_x;        ///< optional. Shape: [BS, H] or [a, b, H] with a * b = BS, the type of expand_x
  std::int64_t comm_quant_mode = 0;  ///< 0 none, 2 int8 (needs H % 8 == 0, f16 or bf16), 3 and 4 MX
  TensorView out;                    ///< out. Shape: [BS, H], expand_x's dtype
};

/// Rows of inactive tokens are not written. A copy expert's row is ori_x[t], a constant expert's alpha_1 * ori_x[t] +
/// alpha_2 * v. comm_alg hierarchy: each server's weighted sum (by expand_scales) is rounded to the rows' dtype, or, as
/// it is in f32, to the codes of comm_quant_mode, and the home rank adds these in server order.
///
/// Source: npu_moe_distribute_combine_v2
struct MoeDistributeCombineV2Args : MoeDistributeCombineRows, MoeDistributeV2 {
  TensorView assist_info_for_combine;  ///< Shape: [3 * rows or more] i32, of dispatch
  TensorView ori_x;                    ///< with copy and constant experts. Shape: [BS, H], the type of expand_x
  TensorView const_expert_alpha_1, const_expert_alpha_2;  ///< with constant experts C. Shape: [C, H], or [C]: one each
  TensorView const_expert_v;                              ///< with constant experts. Shape: [C, H]
};
void infer(MoeDistributeCombineV2Args& args);
std::uint64_t workspace_bytes(const MoeDistributeCombineV2Args& args, const Device& device);
OperatorCost cost(const MoeDistributeCombineV2Args& args);
void moe_distribute_combine_v2(Communicator& ranks, const MoeDistributeCombineV2Args& args, const Call& how = {});

/// The first version, beside moe_distribute_dispatch.
///
/// Source: npu_moe_distribute_combine
struct MoeDistributeCombineArgs : MoeDistributeCombineRows {
  TensorView expand_idx;                                  ///< Shape: [BS * K] i32, of dispatch
  TensorView activation_scale, weight_scale, group_list;  ///< optional, reserved: not read
  std::int64_t out_dtype = 0, group_list_type = 0;        ///< reserved: 0
};
void infer(MoeDistributeCombineArgs& args);
std::uint64_t workspace_bytes(const MoeDistributeCombineArgs& args, const Device& device);
OperatorCost cost(const MoeDistributeCombineArgs& args);
void moe_distribute_combine(Communicator& ranks, const MoeDistributeCombineArgs& args, const Call& how = {});

}  // namespace moecl::npu
