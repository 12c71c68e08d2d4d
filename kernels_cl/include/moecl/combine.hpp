#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <string>

/// Weighted sum of each token's expert rows, in token order:
/// out[t] = sum over k of weights[t, k] * rows[slot_rows[t * K + k]]  (+ shared[t], times sigmoid(shared_gate[t]) if
/// given).
///
/// Sums in f32, k ascending, multiply and add rounded separately, the shared part last: bitwise reproducible. A slot
/// whose row is negative or past the rows contributes nothing (its row is not read).
/// Source: npu_moe_token_unpermute and npu_moe_distribute_combine of the Ascend operators
namespace moecl::combine {

struct Args {
  TensorView rows;         ///< Shape: [R, H] f32, f16 or bf16
  TensorView slot_rows;    ///< Shape: [T * K] i32
  TensorView weights;      ///< optional. Shape: [T, K] f32; absent means 1
  TensorView shared;       ///< optional. Shape: [T, H] f32, f16 or bf16: the shared experts' part
  TensorView shared_gate;  ///< optional, needs `shared`. Shape: [T, 1] f32: logits of the shared experts' sigmoid gate
  bool skip_zero_weights = false;  ///< do not read rows of weight 0 (unpermute); false multiplies them (MC2 combine)
  TensorView out;                  ///< Shape: [T, H] f32, f16 or bf16
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items a token; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const DeviceCaps& caps);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::combine
