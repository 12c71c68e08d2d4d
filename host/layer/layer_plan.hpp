#pragma once
// The decisions that a layer makes once for all passes of one form.
#include <moecl/fused_moe.hpp>
#include <moecl/moe_forward.hpp>
#include <moecl/route_tokens.hpp>
#include <moecl/step.hpp>
#include <moecl/strategy.hpp>

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "host/layer/layer_parts.hpp"
#include "host/layer/shared_group.hpp"
#include "host/layer/weighted_input.hpp"

namespace moecl {

/// The description of a layer that strategies take.
ExpertProblem problem_of(const MoeShape& shape, const MoeLayerOptions& options, WireFormat wire = WireFormat::none);

/// Most tokens for which one launch is faster, if no shared experts run beside it.
std::int64_t worthwhile_tokens(const LayerParts& parts);
/// Most tokens for which passes take one launch; 0: they never do.
std::int64_t one_launch_tokens(const LayerParts& parts);

/// Scratch of a pass, as places in a workspace.
struct PassLayout {
  /// @param placed  Some expert is not at the place of its own number. @param group  optional
  /// @param group_tokens  As SharedGroup::tokens
  PassLayout(const LayerParts& parts, const Strategy& strategy, std::int64_t tokens, bool placed,
             const SharedGroup* group, std::int64_t group_tokens);
  PassLayout(const LayerParts& parts, const Strategy& strategy, std::int64_t tokens, bool placed)
      : PassLayout(parts, strategy, tokens, placed, nullptr, tokens) {}
  std::uint64_t bytes() const noexcept { return workspace.total_bytes(); }

  StepNeeds needs;
  WorkspaceLayout workspace;
  TensorView logits, ids, weights;
  WeightedInput::Layout input;
  std::uint64_t strategy_at;
  SharedExperts::Layout shared;
  TensorView slices;
  bool shared_beside;         ///< the shared experts run on the side queue, and have K-slices of their own
  TensorView shared_slices;   ///< absent unless `shared_beside`
  TensorView places;          ///< absent unless `placed`
  TensorView placed_weights;  ///< absent unless `placed`
  SpecialExperts::Layout special;
  std::optional<Experts::Layout> experts;  ///< unset: the number of rows is known only once they have come
  SharedGroup::Layout of_group;
  TensorView sums, order;  ///< absent unless the strategy fills sums
  TensorView one_launch;   ///< absent if there are too many tokens for one launch
};

/// The properties of a pass's arguments on which decisions depend. Addresses count only by their alignment.
struct PassForm {
  /// @param group_tokens  As SharedGroup::tokens; -1: the tokens of x
  PassForm(const Device& device, const MoeForward& args, const Step& step, std::int64_t group_tokens = -1);

  struct Operand {
    bool present = false;
    DType dtype = DType::f32;
    std::int64_t stride = 0;
    std::uint64_t misaligned_bytes = 0;
    static Operand of(const TensorView& view);
    auto operator<=>(const Operand&) const = default;  // NOLINT(modernize-use-nullptr): of its own code
  };
  std::int64_t tokens, group_tokens;
  StrategyKind strategy;
  bool reduce_results;
  std::size_t failed_variants;  ///< a newly failed variant may change choices
  bool in_place;                ///< out is x
  std::array<Operand, 17> operands;
  auto operator<=>(const PassForm&) const = default;  // NOLINT(modernize-use-nullptr): the same
};

/// Plans for an output with a shared part.
struct SumPlans {
  Planned<LaunchPlan> without_shared, with_shared;
};

/// The operators' choices that depend on the number of rows that a rank's experts get.
struct ReceivedPlans {
  ExpertPlans routed;
  Planned<LaunchPlan> routed_sum, rows_home, stored;
  SumPlans shared_sum, sum;
};

/// The operators' choices in a pass. Each is made when the operator is first enqueued.
struct StepPlans {
  Planned<fused_moe::Plan> one_launch;
  Planned<route_tokens::Plan> route;
  Planned<LaunchPlan> gating;
  Planned<expert_sort::Plan> sort;
  Planned<quantize_groups::Plan> codes;
  PlannedProduct router;
  WeightedInput::Plans input;
  SharedPlans shared;
  SpecialExperts::Plans special;

  struct Rows {
    std::int64_t sources, rows, expected;
    bool in_waves = false;
    auto operator<=>(const Rows&) const = default;  // NOLINT(modernize-use-nullptr): of its own code
  };
  /// The plans for so many rows. Threads: safe
  std::shared_ptr<ReceivedPlans> received(const Rows& rows) {
    const std::lock_guard lock(mutex_);
    const auto found = received_.find(rows);
    if (found != received_.end()) return found->second;
    // With all2all_v, nearly every pass has another number of rows.
    if (received_.size() >= most_received) received_.clear();
    return received_[rows] = std::make_shared<ReceivedPlans>();
  }

 private:
  static constexpr std::size_t most_received = 64;
  std::mutex mutex_;
  std::map<Rows, std::shared_ptr<ReceivedPlans>> received_;
};

/// Layout and choices of all passes of one form.
struct LayerPlan {
  PassLayout layout;
  std::string why_several_launches = {};  ///< the trace's text; empty: one launch is enough
  std::unique_ptr<StepPlans> steps = std::make_unique<StepPlans>();
};

/// The plans of a layer. Threads: safe.
class LayerPlans {
 public:
  /// The plan for `form`. `make` makes it if there is none yet.
  template <class Make>
  std::shared_ptr<const LayerPlan> find(const PassForm& form, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = plans_.find(form); found != plans_.end()) return found->second;
    }
    auto plan = std::make_shared<const LayerPlan>(make());
    const std::lock_guard lock(mutex_);
    // A caller whose passes always have new forms must not fill the memory with plans.
    if (plans_.size() >= most_plans) plans_.clear();
    return plans_.insert_or_assign(form, std::move(plan)).first->second;
  }
  /// To be called when something else that plans depend on, beside the form, has changed.
  void clear() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }

 private:
  static constexpr std::size_t most_plans = 256;
  std::mutex mutex_;
  std::map<PassForm, std::shared_ptr<const LayerPlan>> plans_;
};

}  // namespace moecl
