#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Computes where each token of a rank goes, from the inputs of the distributed operators: router ids, an activity
/// mask, experts without matrix products, and shared experts on ranks of their own.
///
/// Owners are numbered in order of rank: each of the first `shared_ranks` ranks is one owner, and expert e is owner
/// shared_ranks + e. A token has K + shared_experts slots: one for each of its K experts, then one for each shared
/// expert j, which it reaches on rank (rank % m) + j * m with m = shared_ranks / shared_experts. Ids from `experts` on
/// are zero, then copy, then constant experts; nothing is sent for them.
///
/// Three kinds of (token, k) pairs are not sent either: pairs that the mask leaves out, ids that do not exist, and
/// repetitions of an expert within a token. The last two set the fault word. A [T] mask whose trues do not all come
/// first sets it too; of such a mask only the number of trues counts.
/// Source: npu_moe_distribute_dispatch_v2 and npu_moe_distribute_combine_v2
namespace moecl::expert_routes {

struct Args {
  TensorView expert_ids;  ///< Shape: [T, K] i32
  TensorView mask;        ///< optional. Shape: [T] boolean: active tokens, or [T, K]: active pairs
  TensorView weights;     ///< with row_weights. Shape: [T, K] f32
  std::int32_t experts = 0;
  std::int32_t zero_experts = 0, copy_experts = 0, const_experts = 0;
  std::int32_t shared_experts = 0, shared_ranks = 0;  ///< shared_experts divides shared_ranks; both or neither are 0
  std::int32_t rank = 0;                              ///< of this rank
  TensorView owners;                                  ///< out. Shape: [T, K + shared_experts] i32; -1: nothing is sent
  /// optional out. Shape: [T * (K + shared_experts)] i32: shared expert j is j, expert e is shared_experts + e; else 0
  TensorView smooth_rows;
  /// optional out. Shape: as owners, f32: the router's weight, 1 for shared experts, 0 for pairs that take no part
  TensorView row_weights;
  /// optional out. Shape: as owners, i32: t for a copy expert, T * (1 + c) + t for constant expert c, else -1
  TensorView special_rows;
  TensorView active;  ///< optional out. Shape: [T] i32: 1 for tokens with an active pair
  TensorView fault;   ///< optional in/out. Shape: [4] i32, see fault.hpp
};

/// Why this cannot run; empty when it can.
std::string reject(const Args& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});

}  // namespace moecl::expert_routes
