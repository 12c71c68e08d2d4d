#pragma once
#include <moecl/communicator.hpp>
#include <moecl/npu.hpp>

#include <optional>
#include <string>

/// The collective operators dispatch and combine. They bring tokens to the ranks that own their experts, and back.
///
/// The communicator stands for group_ep. Each of its ranks calls the same operator with its own tensors, on the
/// communicator's stream. The ranks first check that their parameters agree and that no rank refuses its arguments. If
/// that fails, every rank throws, nothing is enqueued and the group stays usable. Only rows that exist travel. Another
/// thread of the rank reads their counts from the device; the calling thread never does. dispatch/STRATEGIES.md lists
/// the bytes that travel.
/// With S = shared_expert_rank_num, each of the ranks [0, S) owns one shared expert; each other rank owns nl =
/// moe_expert_num / (ranks - S) experts. G = global_bs. If global_bs is 0, G = BS * ranks, and all ranks need the same
/// BS. No rank has more than Bmax = G / ranks tokens. expand_x has A = G * min(nl, K) rows, on a shared rank A = Bmax *
/// ceil(ranks / (S / shared_expert_num)).
/// Strict mode reports ids out of range, a repeated expert in a token's row, and a 1-D mask with a true after a false.
/// In combine it also reports row information that does not come from a dispatch with these ids and this mask.
/// Compatible mode leaves such pairs out; of such a mask only the number of trues counts. All ranks use the same mode;
/// all or none pass a fault word.
/// Errors: as npu.hpp and communicator.hpp
namespace moecl::npu {

/// How rows travel. All values but `hierarchy` are alike here. With `hierarchy` a token crosses to a server only once,
/// and one sum comes back from there.
enum class CommAlg : std::uint8_t { by_default, fullmesh, fullmesh_v1, fullmesh_v2, hierarchy };

/// Formats of u8 rows that have no dtype: fp4, two codes in a byte, element 0 in the low nibble; or HiFloat8.
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

/// Parameters that only the second versions have: servers, and special experts, whose ids come after the E others.
struct MoeDistributeV2 {
  TensorView elastic_info, performance_info;  ///< refused
  CommAlg comm_alg = CommAlg::by_default;
  std::int64_t zero_expert_num = 0;   ///< Range: 0 or more
  std::int64_t copy_expert_num = 0;   ///< Range: 0 or more
  std::int64_t const_expert_num = 0;  ///< Range: 0 or more
  std::int64_t ranks_per_server = 0;  ///< with hierarchy; divides the ranks; 0: ranks of a node. Only in moecl
};

/// Parameters of both versions of dispatch. Received rows are in the order local expert, source rank, token. Ties go to
/// even, with HiFloat8 away from zero. A row or group of zeros gets scale 0 and codes 0.
///
/// quant_mode, where `largest` is the largest number of the code type:
///   0  no quantization: rows of x, or codes with their scales; with y_codes hif8, x rounded to HiFloat8
///   1  static: round(x * scales), int8 in [-128, 127] or HiFloat8
///   2  a scale for each row: x * (largest / amax), scale 1 / (largest / amax); int8, or fp8 by y_dtype
///   3  a scale for each 128 columns: fp8 x * (largest / amax), scale amax * (1 / largest)
///   4  MX blocks as of npu_dynamic_mx_quant with scale_alg 0, fp8 or fp4
///   5  MX blocks of fp8, scale 2^ceil(log2(max(amax, 1e-4) / largest)); a block of zeros has scale byte 0
/// fp8 is e4m3 unless y_dtype says e5m2.
/// Source: moe_distribute_dispatch_v2 of ops-transformer, its document and its kernel for Ascend 950
struct MoeDistributeDispatchRows : MoeDistributeGroup {
  /// Shape: [BS, H] bf16, f16 or f32; with quant_mode 0 also codes: u8, i8, or i32 (eight int4). Rows may be strided
  TensorView x;
  TensorView expert_ids;  ///< Shape: [BS, K] i32
  /// optional with quant_mode 2 and 3: smooth vectors f32, [shared_expert_num + E, H], without shared ranks [E, H].
  /// Needed with 1: the same, or [H], or [1]; HiFloat8 takes only [1]. Needed with codes: their scales, [BS] f32, or n
  /// for each row: [BS, n] f32 or u8
  TensorView scales;
  /// optional; the first version does not read it. Shape: [BS] bool, active tokens first; or [BS, K]
  TensorView x_active_mask;
  TensorView expert_scales;                 ///< needed with comm_alg hierarchy, else optional. Shape: [BS, K] f32
  std::int64_t quant_mode = 0;              ///< Range: [0, 5]
  std::int64_t expert_token_nums_type = 1;  ///< 0 cumulative, 1 counts
  TensorView expand_x;  ///< out. Shape: [A, H]; x's dtype, i8 for int8, u8 for other codes; fp4: [A, H / 2]
  /// out, with quant_mode 2 to 5 and for codes. Shape: [A] f32; quant_mode 3: [A, ceil(H / 128)] f32; MX: [A, 2 *
  /// ceil(H / 64)] u8; codes: as `scales`, for A rows
  TensorView dynamic_scales;
  TensorView expert_token_nums;  ///< out. Shape: [nl] i64, on a shared rank [1]
  TensorView ep_recv_counts;     ///< out. Shape: [nl * ranks] i32: cumulative over expert, source rank
  TensorView tp_recv_counts;     ///< out, with tp_world_size 1. Shape: [1] i32; never written
};

/// Ids from moe_expert_num on are zero, then copy, then constant experts. Nothing is sent for them.
///
/// Source: npu_moe_distribute_dispatch_v2
struct MoeDistributeDispatchV2Args : MoeDistributeDispatchRows, MoeDistributeV2 {
  std::optional<DType> y_dtype;                ///< expand_x's dtype, f8_e4m3, f8_e5m2, u8 with y_codes, or none
  std::optional<DType> x_dtype, scales_dtype;  ///< refused
  TensorView assist_info_for_combine;          ///< out. Shape: [max(BS * K, 128 * A)] i32: {rank, token, column} a row
  TensorView expand_scales;                    ///< out, with expert_scales. Shape: [A] f32: the weight of each row
  RowCodeType y_codes = RowCodeType::none;     ///< with y_dtype u8: which codes. Only in moecl
};
void infer(MoeDistributeDispatchV2Args& args);
std::uint64_t workspace_bytes(const MoeDistributeDispatchV2Args& args, const Device& device);
OperatorCost cost(const MoeDistributeDispatchV2Args& args);
void moe_distribute_dispatch_v2(Communicator& ranks, const MoeDistributeDispatchV2Args& args, const Call& how = {});

/// The first version: no special experts, no mask, and slot numbers instead of the assist info.
///
/// Source: npu_moe_distribute_dispatch
struct MoeDistributeDispatchArgs : MoeDistributeDispatchRows {
  TensorView expand_idx;     ///< out. Shape: [BS * K] i32: number of earlier pairs of this rank with the same expert
  TensorView expand_scales;  ///< out, with expert_scales. Shape: [A] f32: the weight of each row
};
void infer(MoeDistributeDispatchArgs& args);
std::uint64_t workspace_bytes(const MoeDistributeDispatchArgs& args, const Device& device);
OperatorCost cost(const MoeDistributeDispatchArgs& args);
void moe_distribute_dispatch(Communicator& ranks, const MoeDistributeDispatchArgs& args, const Call& how = {});

/// Parameters of both versions of combine. out[t] = sum over k of expert_scales[t, k] * row(t, k), then the shared
/// experts' rows, then shared_expert_x[t]. Sums are f32 in this order; multiply and add are rounded separately; the
/// result is rounded once.
/// comm_quant_mode 2: each 8 elements travel as int8 with one scale amax * (1 / 127). Quotients are rounded to f16,
/// then to int8. The scale, and the product with it, are rounded to the rows' dtype. 3 and 4: MX blocks of e5m2 and
/// e4m3 with scale 2^(floor(log2(amax)) - floor(log2(largest))). The numbers of these codes travel, in the rows' dtype.
struct MoeDistributeCombineRows : MoeDistributeGroup {
  TensorView expand_x;               ///< Shape: [A, H] bf16, f16 or f32; in the row order of dispatch
  TensorView expert_ids;             ///< Shape: [BS, K] i32: as given to dispatch
  TensorView ep_send_counts;         ///< Shape: [nl * ranks] i32: ep_recv_counts of dispatch
  TensorView expert_scales;          ///< Shape: [BS, K] f32: the router's weights
  TensorView tp_send_counts;         ///< optional, reserved: not read
  TensorView x_active_mask;          ///< optional; the first version does not read it. Shape: as given to dispatch
  TensorView expand_scales;          ///< with comm_alg hierarchy. Shape: [A] f32, of dispatch
  TensorView shared_expert_x;        ///< optional. Shape: [BS, H] or [a, b, H] with a * b = BS, the type of expand_x
  std::int64_t comm_quant_mode = 0;  ///< 0 none, 2 int8 (needs H % 8 == 0, f16 or bf16), 3 and 4 MX
  TensorView out;                    ///< out. Shape: [BS, H], expand_x's dtype
};

/// Rows of inactive tokens are not written. A copy expert's row is ori_x[t]; a constant expert's row is alpha_1 *
/// ori_x[t] + alpha_2 * v. With comm_alg hierarchy each server sums its rows in f32, weighted by expand_scales. The sum
/// is rounded to the rows' dtype, or directly to the codes of comm_quant_mode. The home rank adds these sums in server
/// order.
/// Source: npu_moe_distribute_combine_v2
struct MoeDistributeCombineV2Args : MoeDistributeCombineRows, MoeDistributeV2 {
  TensorView assist_info_for_combine;  ///< Shape: [3 * rows or more] i32, of dispatch
  TensorView ori_x;                    ///< with copy and constant experts. Shape: [BS, H], the type of expand_x
  TensorView const_expert_alpha_1, const_expert_alpha_2;  ///< with C constant experts. Shape: [C, H], or [C]: one each
  TensorView const_expert_v;                              ///< with constant experts. Shape: [C, H]
};
void infer(MoeDistributeCombineV2Args& args);
std::uint64_t workspace_bytes(const MoeDistributeCombineV2Args& args, const Device& device);
OperatorCost cost(const MoeDistributeCombineV2Args& args);
void moe_distribute_combine_v2(Communicator& ranks, const MoeDistributeCombineV2Args& args, const Call& how = {});

/// The first version. It goes with moe_distribute_dispatch.
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
