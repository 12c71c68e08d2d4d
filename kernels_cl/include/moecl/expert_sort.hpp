#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Stable counting sort of the S = T * K routed slots by expert, in O(S): histogram, row ends, order and its inverse.
///
/// Only experts of [first_expert, end_expert) take part (local ids count from first_expert); any other id is inactive
/// and gets slot_rows = -1. Rows of an expert stand in slot order, that is by token, then k.
///
/// Source: npu_moe_init_routing_v2 (dropless) and npu_moe_token_permute of the Ascend operators
namespace moecl::expert_sort {

struct Args {
  TensorView ids;                  ///< Shape: [T, K] i32 contiguous
  std::int32_t first_expert = 0;   ///< Range: [0, end_expert)
  std::int32_t end_expert = 0;     ///< local experts E = end_expert - first_expert
  std::int32_t total_experts = 0;  ///< ids outside [-1, total_experts) set the fault word; -1 is "no expert"
  /// 0: standard layout, rows concatenated. Else batched: expert e's rows start at e * rows_per_expert; more rows than
  /// that set the fault word and are dropped (slot_rows = -1).
  std::int64_t rows_per_expert = 0;
  TensorView
      row_ends;  ///< out. Shape: [E] i32, cumulative end offsets (equal neighbours: an empty expert) of the kept rows
  TensorView sorted_slots;  ///< out. Shape: [S] i32 (batched: [E * rows_per_expert]): row j holds slot sorted_slots[j];
                            ///< entries past the rows are untouched
  TensorView slot_rows;     ///< out. Shape: [S] i32: the row of slot i, or -1
  TensorView fault;  ///< optional in/out. Shape: [4] i32 {FaultCode, slot, id, -} of the lowest slot in fault; written
                     ///< only while the code is 0
  BufferView scratch;  ///< at least scratch_bytes(S, E, caps)
};

/// Values of fault[0].
enum FaultCode : std::int32_t { no_fault = 0, expert_id_out_of_range = 1, expert_over_capacity = 2 };

/// Units: bytes. 0 where few slots need no scratch.
std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t experts, const DeviceCaps& caps);

struct Config {
  std::int32_t lanes = 0;  ///< work-items a chunk of slots; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const DeviceCaps& caps);
/// Errors: invalid_argument  `reject` says why
/// Async:  one to three kernels. Empty: S == 0 still writes row_ends (zeros)
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::expert_sort
