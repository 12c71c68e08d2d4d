#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Compares the rows of x and y. For each row: the maximum of |x|, the maximum of |y - x|, the sum of x^2, the sum of
/// (y - x)^2. Sums are f32 in a fixed order. NaN counts as larger than infinity.
namespace moecl::row_differences {

struct Args {
  TensorView x;    ///< Shape: [N, K] f32, f16 or bf16
  TensorView y;    ///< Shape: [N, K] f32, f16 or bf16
  TensorView out;  ///< Shape: [N, 4] f32, contiguous: the four numbers in the order above
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items per row; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: without rows nothing is enqueued
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::row_differences
