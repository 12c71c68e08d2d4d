#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <string>

/// What the experts that need no products give: row t is x[t] (a copy expert), row T * (1 + c) + t is
/// alpha_1[c] * x[t] + alpha_2[c] * v[c] (constant expert c). f32, multiplied and added separately.
/// Source: copy and const experts of npu_moe_distribute_combine_v2
namespace moecl::const_experts {

struct Args {
  TensorView x;        ///< Shape: [T, H] f32, f16 or bf16
  TensorView alpha_1;  ///< Shape: [C, H], or one each: [C]; the type of x, as the next two
  TensorView alpha_2;  ///< Shape: as alpha_1
  TensorView v;        ///< Shape: [C, H]
  TensorView rows;     ///< out. Shape: [(1 + C) * T, H] f32
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Device& device);
/// By the plan of arguments of that form.
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});

}  // namespace moecl::const_experts
