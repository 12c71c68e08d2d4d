#pragma once
// The launch of a kernel by its plan.
#include <moecl/launch_plan.hpp>

#include "runtime/kernel.hpp"

namespace moecl {

/// One kernel of `source`, of which nothing is decided, formatted or allocated any more.
inline void launch_planned(StreamView stream, const ProgramSource& source, const char* kernel, const LaunchPlan& plan,
                           const Submit& submit, const auto&... operands) {
  launch(stream, {&source, plan.options, kernel}, {plan.global, plan.local}, submit,
         {source.name, plan.variant, stream.trace != nullptr ? plan.shape : std::string(), plan.cost.bytes,
          plan.cost.flops},
         operands...);
}

}  // namespace moecl
