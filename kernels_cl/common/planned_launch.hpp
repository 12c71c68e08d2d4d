#pragma once
// The launch of a kernel by its plan, and the plan for an operator that is enqueued without a plan.
#include <moecl/context.hpp>
#include <moecl/launch_plan.hpp>

#include "runtime/kept_decisions.hpp"
#include "runtime/kernel.hpp"

namespace moecl {

/// Launches one kernel of `source` by its plan. Nothing is left to decide, format or allocate.
inline void launch_planned(StreamView stream, const ProgramSource& source, const char* kernel, const LaunchPlan& plan,
                           const Submit& submit, const auto&... operands) {
  launch(stream, {&source, plan.options, kernel}, {plan.global, plan.local}, submit,
         {source.name, plan.variant, stream.trace != nullptr ? plan.shape : std::string(), plan.cost.bytes,
          plan.cost.flops},
         operands...);
}

/// The result of `plan` for the first arguments of that form in the context, kept from then on. Errors: as `plan`
/// @param form  every operand and number that `plan` reads
template <class Plan, class... Form>
auto kept_plan(StreamView stream, const ProgramSource& source, const Plan& plan, const Form&... form) {
  return stream.context->decisions().find<decltype(plan())>({&source, *stream.device, form...}, plan);
}

}  // namespace moecl
