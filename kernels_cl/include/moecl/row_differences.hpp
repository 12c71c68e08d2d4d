#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// How far rows are from others: of each row the largest |x|, the largest |y - x|, the sum of x^2 and that of (y -
/// x)^2. Sums are f32 in a fixed order. NaN counts as larger than infinity.
namespace moecl::row_differences {

struct Args {
  TensorView x;    ///< Shape: [N, K] f32, f16 or bf16
  TensorView y;    ///< Shape: [N, K] f32, f16 or bf16
  TensorView out;  ///< Shape: [N, 4] f32, contiguous: the four numbers in the order above
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items a row; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why the arguments cannot run there; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// By the plan of arguments of that form.
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: no rows enqueue nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::row_differences
