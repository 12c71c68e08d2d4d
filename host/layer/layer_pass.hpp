#pragma once
// A forward pass: one batch of tokens through a layer, on one rank or on many.
#include <moecl/fused_moe.hpp>

#include "dispatch/step_memory.hpp"
#include "host/layer/expert_places.hpp"
#include "host/layer/layer_plan.hpp"
#include "host/layer/side_work.hpp"

namespace moecl {

/// The layer, plans, strategy and memory that passes use. Lifetime: all of them outlive the passes
struct PassParts {
  const LayerParts& parts;
  LayerPlans& plans;
  Strategy& strategy;
  StepMemory* memory = nullptr;          ///< null: the caller's workspace holds everything
  const ExpertPlaces* places = nullptr;  ///< null: every expert is at the place of its number
  const SharedGroup* group = nullptr;    ///< null: this rank computes the shared experts of all its tokens
  Step step = {};                        ///< `strategy` is of the kind that it names
  bool first_of_tokens = true;           ///< this rank is the first of those that have the same tokens
};

/// The steps of a forward pass. Each step only enqueues; `run` does all of them. Between `route`, `run_shared`,
/// `run_experts` and `finish` an exchange may be under way (see Strategy), so steps of another batch may come in
/// between.
///
/// Two batches in flight share nothing that they write: each has its own strategy, memory and rows.
class LayerPass {
 public:
  /// Which tokens of a call this pass has.
  struct Part {
    std::int64_t first_token = 0;  ///< its index among the tokens of all ranks
    bool first = true;             ///< no other part of the call has come before
    /// The ranks have agreed about this and `capacity`, both as in TokensIn, for this part.
    const std::vector<std::int64_t>* tokens_of_ranks = nullptr;
    std::int64_t capacity = 0;
    /// Tokens of all ranks. They decide the choice of the experts' variants, so another placement gives the same bits.
    std::int64_t tokens_of_all = 0;
    /// Tokens that the ranks really bring, without spare room of a bounded step. They bound the experts that have rows.
    std::int64_t tokens_brought = 0;
  };
  /// @param args  Checked, [T, H]
  LayerPass(StreamView stream, const PassParts& over, const MoeForward& args, Part part);

  void run(Submit submit = {});
  /// Runs router and choice only, then brings the experts that such a pass would use to device memory.
  void prefetch(Submit submit = {});

  /// Router, choice of experts, their places; starts the dispatch of the tokens.
  void route();
  /// Launches the rest of the strategy's dispatch, then the shared experts beside it, unless they run already.
  void run_shared();
  /// Runs the experts on the rows that came, and starts the combine.
  void run_experts();
  /// Writes the outputs.
  void finish(Submit submit = {});

 private:
  /// Finds or makes the plan, and takes the memory that it needs.
  void plan();
  TensorView scratch(const TensorView& place) const { return tensor_in(memory_, place); }
  /// The caller's tensor, if it is present and operators take it (not i64). Otherwise the one in the workspace.
  TensorView given_or(const TensorView& given, const TensorView& place) const {
    return given.present() && given.dtype != DType::i64 ? given : scratch(place);
  }
  const TensorView& expert_input() const { return args_.expert_input.present() ? args_.expert_input : args_.x; }
  gating_top_k::Args choice() const;
  /// `choice` with the weights that ExpertPlaces::find makes if experts are gone: 0 for those, the others rescaled.
  gating_top_k::Args placed(gating_top_k::Args choice) const {
    if (over_.places != nullptr && over_.places->masks()) choice.weights = scratch(layout_->placed_weights);
    return choice;
  }
  /// Gives the tokens and their choice to the strategy. Returns the sort that it needs, if any.
  std::optional<expert_sort::Args> prepare(const gating_top_k::Args& choice);
  std::optional<fused_moe::Args> one_launch();
  std::string why_several_launches();
  /// Whether one reduction is enough: the routed and the shared part are both partial sums of the tp group, and the
  /// caller asks for their total only.
  bool reduces_once() const;
  void reduce_once(const combine::Args& sum, Submit submit);
  StepPlans& steps() { return *plan_->steps; }
  /// @return  false: one launch is not possible, and nothing was enqueued
  bool run_at_once(Submit submit);
  /// Routes by the plan, and starts the work on the side queue.
  void begin();
  /// Shared experts of the tokens x; the result goes to shared_.
  void enqueue_shared(StreamView stream, const TensorView& x, const SliceScratch& scratch);
  /// Logits, choice of experts, their places, the sort of rows and, if given, codes of the tokens.
  /// @param concurrent  whether other kernels may run at the same time
  void choose(const gating_top_k::Args& choice, const std::optional<expert_sort::Args>& sort,
              const std::optional<RowQuant::Step>& codes, bool concurrent);
  /// Logits, and the caller's i64 ids narrowed to i32.
  void run_router(const gating_top_k::Args& choice);
  void run_special(const gating_top_k::Args& choice);
  /// Rows of all experts here if tokens choose all experts evenly.
  std::int64_t expected_rows(const RoutedRows& rows) const;
  /// `rows` without the free places at the end, which have no weights and no rows.
  RoutedRows of_experts_here(RoutedRows rows) const;
  /// Upper bound of the rows, by the tokens that all ranks really bring.
  std::int64_t most_rows(const RoutedRows& rows) const;
  void count(const RoutedRows& rows);
  void send_home(TensorView expert_rows);
  /// The only output, if the strategy can write its sums there and they need no more work. Otherwise absent.
  TensorView sums_alone() const;
  /// Writes the sum, and adds the shared experts' part of all tokens, or of those that this rank has it for.
  void add_shared(combine::Args sum, TensorView out, SumPlans& plans, Submit submit = {});

  StreamView stream_;
  PassParts over_;
  MoeForward args_;
  Part part_;
  // State of the steps under way.
  std::shared_ptr<const LayerPlan> plan_;
  const PassLayout* layout_ = nullptr;  ///< of plan_
  std::shared_ptr<ReceivedPlans> received_;
  BufferView memory_;
  TensorView placed_;  ///< the chosen experts' places
  WeightedInput input_;
  std::optional<RowQuant::Step> codes_;  ///< codes of the tokens, made along with the choice
  Share shared_share_{};                 ///< the tokens of `shared_`
  SharedExperts::Output shared_;
  SideWork beside_;
  TensorView special_;  ///< result of the experts without products; absent: none
};

}  // namespace moecl
