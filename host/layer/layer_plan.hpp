#pragma once
// What a layer decides once for all passes of one form.
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

/// What strategies are told of a layer.
ExpertProblem problem_of(const MoeShape& shape, const MoeLayerOptions& options, WireFormat wire = WireFormat::none);

/// Up to how many tokens one launch is faster, were there no shared experts beside it.
std::int64_t worthwhile_tokens(const LayerParts& parts);
/// Up to how many tokens passes take one launch; 0: none does.
std::int64_t one_launch_tokens(const LayerParts& parts);

/// Scratch of a pass.
struct PassLayout {
  /// @param placed  some expert stands elsewhere than at the place of its number. @param group  optional
  /// @param group_tokens  as SharedGroup::tokens
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
  bool shared_beside;         ///< the shared experts run on the side queue, and have slices of their own
  TensorView shared_slices;   ///< absent unless so
  TensorView places;          ///< absent unless `placed`
  TensorView placed_weights;  ///< the same
  SpecialExperts::Layout special;
  std::optional<Experts::Layout> experts;  ///< unset: rows are known when they have come
  SharedGroup::Layout of_group;
  TensorView sums, order;  ///< absent unless the strategy fills sums
  TensorView one_launch;   ///< absent where tokens are too many for one
};

/// What decisions about a pass depend on: what its arguments are, not where.
struct PassForm {
  /// @param group_tokens  as SharedGroup::tokens; -1: those of x
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
  std::size_t failed_variants;  ///< which another choice may be due to
  bool in_place;                ///< out is x
  std::array<Operand, 17> operands;
  auto operator<=>(const PassForm&) const = default;  // NOLINT(modernize-use-nullptr): the same
};

/// Of an output with a shared part.
struct SumPlans {
  Planned<LaunchPlan> without_shared, with_shared;
};

/// Choices about the rows that a rank's experts get, of ranks that bring as many.
struct ReceivedPlans {
  ExpertPlans routed;
  Planned<LaunchPlan> routed_sum, rows_home, stored;
  SumPlans shared_sum, sum;
};

/// The operators' choices in a pass, each made when it is first enqueued.
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
  /// Those of so many. Threads: safe
  std::shared_ptr<ReceivedPlans> received(const Rows& rows) {
    const std::lock_guard lock(mutex_);
    const auto found = received_.find(rows);
    if (found != received_.end()) return found->second;
    // all2all_v brings another number nearly every time.
    if (received_.size() >= most_received) received_.clear();
    return received_[rows] = std::make_shared<ReceivedPlans>();
  }

 private:
  static constexpr std::size_t most_received = 64;
  std::mutex mutex_;
  std::map<Rows, std::shared_ptr<ReceivedPlans>> received_;
};

/// The choices of a pass.
struct LayerPlan {
  PassLayout layout;
  std::string why_several_launches = {};  ///< as the trace of a pass says it; empty: one is enough
  std::unique_ptr<StepPlans> steps = std::make_unique<StepPlans>();
};

/// The plans of a layer. Threads: safe.
class LayerPlans {
 public:
  /// The plan of that form, made if there is none yet.
  template <class Make>
  std::shared_ptr<const LayerPlan> find(const PassForm& form, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = plans_.find(form); found != plans_.end()) return found->second;
    }
    auto plan = std::make_shared<const LayerPlan>(make());
    const std::lock_guard lock(mutex_);
    // Who asks for ever other forms does not fill the memory with them.
    if (plans_.size() >= most_plans) plans_.clear();
    return plans_.insert_or_assign(form, std::move(plan)).first->second;
  }
  /// What plans depend on beside the form has changed.
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
