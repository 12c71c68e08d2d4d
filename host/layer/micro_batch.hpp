#pragma once
// Tokens of one rank on their way through the layer.
#include <moecl/parallel_layer.hpp>

#include <memory>

#include "host/layer/expert_places.hpp"
#include "host/layer/layer_parts.hpp"
#include "host/layer/weighted_input.hpp"

namespace moecl {

/// The steps of a forward pass, to be called in this order; each only enqueues. Between them bytes may be under way
/// (see Strategy), so another batch's steps may come in between.
///
/// Everything that a batch writes between its first and its last step is its own: a strategy, a workspace, rows.
class MicroBatch {
 public:
  /// @param rank  Where the strategy exchanges. Lifetime: plan, parts and places outlive this
  MicroBatch(const ExpertRank& rank, const ParallelPlan& plan, const LayerParts& parts, const ExpertPlaces& places);

  /// Router, choice of experts and their places; launches the tokens. @param args  Checked, [T, H]
  /// @param first_token  The number of the first one among those of all ranks
  void route(const ParallelLayer::Forward& args, std::int64_t first_token);
  /// Launches what the strategy still has to, then runs the shared experts beside that.
  void run_shared();
  /// Experts on the rows that came; launches their way back.
  void run_experts();
  /// Writes the outputs.
  void finish();

  std::uint64_t workspace_bytes() const noexcept;

 private:
  /// Scratch that grows with the tokens.
  struct Layout {
    Layout(const LayerParts& parts, const MoeShape& shape, std::int64_t tokens, bool shared_by_tokens);
    WorkspaceLayout workspace;
    TensorView logits, ids, physical, weights, routed, index, all_shared, all_gate_logits, slices;
    WeightedInput::Layout input;
    SharedExperts::Layout shared;
  };

  SharedExperts::Output shared_of_all_tokens();
  void write(const SharedExperts::Output& shared, TensorView out);

  ExpertRank rank_;
  const ParallelPlan& plan_;
  const LayerParts& parts_;
  const ExpertPlaces& places_;
  std::unique_ptr<Strategy> strategy_;
  Workspace token_memory_, row_memory_;
  // Of the pass under way.
  std::unique_ptr<Layout> layout_;
  BufferView memory_;
  ParallelLayer::Forward args_;
  TensorView routed_;
  SharedExperts::Output shared_;
};

}  // namespace moecl
