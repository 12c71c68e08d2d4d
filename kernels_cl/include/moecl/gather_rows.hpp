#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Copies rows by index, converting the storage type: out[j] = x[index[j] / divisor].
///
/// With x = hidden states, index = the sorted slots of expert_sort and divisor = K this is the permutation of tokens
/// into expert order.
namespace moecl::gather_rows {

struct Args {
  TensorView x;              ///< Shape: [N, H] f32, f16, bf16, or i8 (then `out` is i8)
  TensorView index;          ///< Shape: [R] i32. Range: entries outside [0, N * divisor) leave their out row untouched
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  TensorView row_ends;  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  /// 0: standard layout, rows concatenated. Else batched: row e * rows_per_expert + i is valid for
  /// i < row_ends[e] - row_ends[e - 1].
  std::int64_t rows_per_expert = 0;
  TensorView out;  ///< Shape: [R, H] f32, f16, bf16 or i8
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items for each row; 0 picks the tuned number, else 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// Launches `plan`, which was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: zero rows enqueue nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::gather_rows
