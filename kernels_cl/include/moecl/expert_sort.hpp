#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
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
  /// that are dropped (slot_rows = -1) and set the fault word unless `may_drop`.
  std::int64_t rows_per_expert = 0;
  bool may_drop = false;
  /// optional out. Shape: [E] i32, cumulative end offsets (equal neighbours: an empty expert) of the kept rows
  TensorView row_ends;
  TensorView counts;        ///< optional out. Shape: [E] i32: slots of each expert, dropped ones included
  TensorView sorted_slots;  ///< out. Shape: [S] i32 (batched: [E * rows_per_expert]): row j holds slot sorted_slots[j];
                            ///< entries past the rows are untouched
  TensorView slot_rows;     ///< optional out. Shape: [S] i32: the row of slot i, or -1
  TensorView fault;         ///< optional in/out. Shape: [4] i32, see fault.hpp: the lowest slot in fault
  BufferView scratch;       ///< at least scratch_bytes(S, E, caps)

  /// For a sort by wider keys, one digit for each pass (see stable_sort). With key_bits > 0 the ids are keys, and the
  /// "expert" of a key is (key >> key_shift) % end_expert. Keys outside [0, 2^key_bits) set the fault word.
  std::int32_t key_bits = 0;   ///< Range: [0, 31]; > 0 needs first_expert 0, end_expert = total_experts a power of two
  std::int32_t key_shift = 0;  ///< Range: [0, 31)
  TensorView order;  ///< optional. Shape: [S] i32, a permutation: the order in which slots are read; absent: ascending
};

/// Units: bytes. 0 where few slots need no scratch.
std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t experts, const DeviceCaps& caps);

struct Config {
  std::int32_t lanes = 0;  ///< work-items for each chunk of slots; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// The launches of a sort, decided once for all arguments of one form.
struct Plan {
  LaunchPlan sort;               ///< one chunk: the only kernel; several chunks: the scatter, the last kernel
  LaunchPlan histogram;          ///< several chunks: counts each chunk's slots by expert
  std::int64_t chunks = 1;       ///< number of chunks into which the slots are cut
  std::int64_t chunk_slots = 0;  ///< slots of each chunk; the last may have fewer
  std::uint64_t counter_bytes = 0;
};
/// Errors: invalid_argument  `reject` says why
Plan plan(const Args& args, const Config& config, const Device& device);
/// Launches `plan`, which was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one to three kernels. Empty: S == 0 still writes row_ends (zeros)
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::expert_sort
