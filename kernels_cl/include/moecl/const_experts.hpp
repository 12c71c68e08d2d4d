#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <string>

/// Computes the rows of experts without matrix products: row t is x[t] (copy expert), row T * (1 + c) + t is
/// alpha_1[c] * x[t] + alpha_2[c] * v[c] (constant expert c). f32, multiply and add rounded separately.
/// Source: copy and const experts of npu_moe_distribute_combine_v2
namespace moecl::const_experts {

struct Args {
  TensorView x;        ///< Shape: [T, H] f32, f16 or bf16
  TensorView alpha_1;  ///< Shape: [C, H], or [C]: one number for each expert. Type: that of x, as for alpha_2 and v
  TensorView alpha_2;  ///< Shape: as alpha_1
  TensorView v;        ///< Shape: [C, H]
  TensorView rows;     ///< out. Shape: [(1 + C) * T, H] f32
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Device& device);
/// Launches `plan`, which was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});

}  // namespace moecl::const_experts
