#pragma once
// A pass through the routed experts of a layer alone, for rows that the caller's own exchange brought.
#include <moecl/expert_rows.hpp>

#include <compare>
#include <map>
#include <memory>
#include <mutex>

#include "host/layer/layer_plan.hpp"

namespace moecl {

/// The plans of expert passes, kept by the form of their rows. Threads: safe.
class ExpertPassPlans {
 public:
  struct Form {
    std::int64_t sources, rows, rows_per_expert, expected, group, slots;
    std::int32_t divisor;
    std::array<PassForm::Operand, 6> operands;
    auto operator<=>(const Form&) const = default;  // NOLINT(modernize-use-nullptr): of its own code
  };
  struct Plans {
    ExpertPlans experts;
    Planned<LaunchPlan> out;
  };
  std::shared_ptr<Plans> find(const Form& form);

 private:
  static constexpr std::size_t most_plans = 64;
  std::mutex mutex_;
  std::map<Form, std::shared_ptr<Plans>> plans_;
};

/// Workspace of a pass of `rows` rows. @param slots  For sums: slots of all tokens; else 0
std::uint64_t expert_pass_bytes(const LayerParts& parts, std::int64_t rows, std::int64_t slots);

/// Errors: invalid_argument  before anything is enqueued; unsupported  CLBlast, and rows that do not stand in room of
///         equal size. Async: kernels only
void run_expert_pass(StreamView stream, const LayerParts& parts, ExpertPassPlans& plans, const ExpertRows& rows,
                     Submit submit);

}  // namespace moecl
