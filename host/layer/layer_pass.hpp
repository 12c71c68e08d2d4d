#pragma once
// A batch of tokens on its way through a layer, on one rank or on many.
#include <moecl/fused_moe.hpp>

#include "dispatch/step_memory.hpp"
#include "host/layer/expert_places.hpp"
#include "host/layer/layer_plan.hpp"
#include "host/layer/side_work.hpp"

namespace moecl {

/// What passes go through, and where. Lifetime: all of it outlives them
struct PassParts {
  const LayerParts& parts;
  LayerPlans& plans;
  Strategy& strategy;
  StepMemory* memory = nullptr;          ///< null: the caller's workspace holds it all
  const ExpertPlaces* places = nullptr;  ///< null: every expert stands at the place of its number
  const SharedGroup* group = nullptr;    ///< null: this rank computes the shared experts of all its tokens
  Step step = {};                        ///< `strategy` is of its kind
  bool first_of_tokens = true;           ///< of the ranks that have the same tokens
};

/// The steps of a forward pass, each of which only enqueues: `run` is all of them. Between `route`, `run_shared`,
/// `run_experts` and `finish` bytes may be under way (see Strategy), so another batch's steps may come in between.
///
/// Everything that a batch writes between its first and its last step is its own: a strategy, memory, rows.
class LayerPass {
 public:
  /// Which tokens of a call these are.
  struct Part {
    std::int64_t first_token = 0;  ///< the number of the first one among those of all ranks
    bool first = true;             ///< no other part of the call came before
    /// What ranks have agreed about, as in TokensIn: of this part.
    const std::vector<std::int64_t>* tokens_of_ranks = nullptr;
    std::int64_t capacity = 0;
    /// Of all ranks. Experts' variants are chosen by them, so that another placement of experts leaves the bits.
    std::int64_t tokens_of_all = 0;
    /// The same without those that a step has room for. They bound the experts that have rows.
    std::int64_t tokens_brought = 0;
  };
  /// @param args  Checked, [T, H]
  LayerPass(StreamView stream, const PassParts& over, const MoeForward& args, Part part);

  void run(Submit submit = {});
  /// Router and choice alone, then the experts that such a pass would use come to device memory.
  void prefetch(Submit submit = {});

  /// Router, choice of experts and their places; launches the tokens.
  void route();
  /// Launches what the strategy still has to, then runs the shared experts beside that, unless they run already.
  void run_shared();
  /// Experts on the rows that came; launches their way back.
  void run_experts();
  /// Writes the outputs.
  void finish(Submit submit = {});

 private:
  /// Finds or makes the plan, and takes its memory.
  void plan();
  TensorView scratch(const TensorView& place) const { return tensor_in(memory_, place); }
  /// The caller's tensor where there is one that operators take, else that of the workspace.
  TensorView given_or(const TensorView& given, const TensorView& place) const {
    return given.present() && given.dtype != DType::i64 ? given : scratch(place);
  }
  const TensorView& expert_input() const { return args_.expert_input.present() ? args_.expert_input : args_.x; }
  gating_top_k::Args choice() const;
  /// With the weights that experts with places share.
  gating_top_k::Args placed(gating_top_k::Args choice) const {
    if (over_.places != nullptr && over_.places->masks()) choice.weights = scratch(layout_->placed_weights);
    return choice;
  }
  /// Of the strategy, for the tokens that choose so.
  std::optional<expert_sort::Args> prepare(const gating_top_k::Args& choice);
  std::optional<fused_moe::Args> one_launch();
  std::string why_several_launches();
  /// Routed and shared parts are parts of sums of the tp group, and only their sum is asked for.
  bool reduces_once() const;
  void reduce_once(const combine::Args& sum, Submit submit);
  StepPlans& steps() { return *plan_->steps; }
  /// @return  false: that cannot be, and nothing was enqueued
  bool run_at_once(Submit submit);
  /// Routes by the plan, and begins what runs beside.
  void begin();
  /// Of those tokens, into shared_.
  void enqueue_shared(StreamView stream, const TensorView& x, const SliceScratch& scratch);
  /// Logits, experts, their places, the order of rows, and codes of the tokens if asked for.
  void choose(const gating_top_k::Args& choice, const std::optional<expert_sort::Args>& sort,
              const std::optional<RowQuant::Step>& codes);
  /// Logits, and the caller's ids as operators take them.
  void run_router(const gating_top_k::Args& choice);
  void run_special(const gating_top_k::Args& choice);
  /// Of all experts here, where they are chosen evenly.
  std::int64_t expected_rows(const RoutedRows& rows) const;
  /// Without the free places at their end, which have no weights, nor rows.
  RoutedRows of_experts_here(RoutedRows rows) const;
  /// Of tokens that are there, on all ranks.
  std::int64_t most_rows(const RoutedRows& rows) const;
  void count(const RoutedRows& rows);
  void send_home(TensorView expert_rows);
  /// The one output, where nothing is left to do to the sums: then the strategy writes them there. Else absent.
  TensorView sums_alone() const;
  /// Writes the sum and the shared experts' part, of all tokens or those that this rank has it of.
  void add_shared(combine::Args sum, TensorView out, SumPlans& plans, Submit submit = {});

  StreamView stream_;
  PassParts over_;
  MoeForward args_;
  Part part_;
  // Of the steps under way.
  std::shared_ptr<const LayerPlan> plan_;
  const PassLayout* layout_ = nullptr;  ///< the plan's
  std::shared_ptr<ReceivedPlans> received_;
  BufferView memory_;
  TensorView placed_;  ///< ids as places
  WeightedInput input_;
  std::optional<RowQuant::Step> codes_;  ///< of the tokens, made beside the choice
  Share shared_share_{};                 ///< tokens that `shared_` is of
  SharedExperts::Output shared_;
  SideWork beside_;
  TensorView special_;  ///< what experts without products give; absent: nothing
};

}  // namespace moecl
