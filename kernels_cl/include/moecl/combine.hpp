#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Weighted sum of each token's expert rows, in token order:
/// out[t] = sum over k of weights[t, k] * (rows[slot_rows[t * K + k]] + bias[bias_ids[t, k]])  (+ shared, + residual).
///
/// Sums are f32: k ascending, multiply and add rounded separately, shared and residual last, then one rounding to the
/// type of `out`. Results are bitwise reproducible. A row index outside [0, R) is not read: its slot contributes
/// nothing, or with `bias` as much as a row of zeros.
/// Source: npu_moe_token_unpermute, npu_moe_distribute_combine and npu_moe_finalize_routing of the Ascend operators
namespace moecl::combine {

struct Args {
  TensorView rows;  ///< Shape: [R, H] f32, f16 or bf16; or i8 with rows_scale
  /// with i8 rows. Shape: [R, H / 8] f32, f16 or bf16: a scale for each 8 columns. Each row element times its scale is
  /// rounded to the type of the scale before the sum. See quantize_rows::Args::group
  TensorView rows_scale;
  TensorView slot_rows;       ///< Shape: [T * K] i32
  bool column_slots = false;  ///< the slot of (t, k) is k * T + t rather than t * K + k
  /// optional. Shape: [T] i32, cumulative: token t has the slots [slot_ends[t - 1], slot_ends[t]) of slot_rows [S]
  /// instead of K slots, and weights are [R], one for each row. See scatter_add.
  TensorView slot_ends;
  TensorView weights;              ///< optional. Shape: [T, K] f32, f16 or bf16; absent means 1
  TensorView bias;                 ///< optional. Shape: [E, H] f32, f16 or bf16
  TensorView bias_ids;             ///< with `bias`. Shape: [T, K] i32. Range: ids outside [0, E) add no bias
  TensorView shared;               ///< optional. Shape: [T, H] f32, f16 or bf16: the shared experts' part
  TensorView shared_gate;          ///< optional, needs `shared`. Shape: [T, 1] f32: logits of its sigmoid gate
  float shared_scale = 1;          ///< multiplies `shared`
  std::int64_t shared_token = 0;   ///< with slot_ends: the token of row 0 of `shared`, which may have fewer than T rows
  TensorView residual;             ///< optional, needs `shared`. Shape: [T, H] of the type of `shared`
  bool skip_zero_weights = false;  ///< do not read rows of weight 0 (unpermute); false multiplies them (MC2 combine)
  TensorView active;               ///< optional. Shape: [T] i32: tokens with 0 are not written
  TensorView out;                  ///< Shape: [T, H] f32, f16 or bf16
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items for each token; 0 picks the tuned number, else 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// Launches `plan`, which was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::combine
