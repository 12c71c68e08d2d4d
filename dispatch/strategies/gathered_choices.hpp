#pragma once
// Gathers the expert ids of all ranks' tokens, and nothing else. A prefetch uses it to learn which of a rank's experts
// the tokens choose.
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

/// A strategy without a combine. Its rows have no hidden states: `receive` gives only their row ends.
class GatheredChoices final : public Strategy {
 public:
  /// @param rank    with a queue beside the rank's stream, on which everything is enqueued
  /// @param memory  of its steps, which the caller begins. Lifetime: outlives this
  GatheredChoices(const ExpertRank& rank, std::int32_t top_k, StepMemory& memory)
      : rank_(rank), top_k_(top_k), memory_(memory) {}

  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override;
  /// @param tokens  tokens_of_ranks must be set
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override;
  void begin_dispatch() override;
  RoutedRows receive() override;
  void begin_combine(TensorView /*expert_rows*/, TensorView /*sums*/) override {}
  combine::Args finish_combine() override { return {}; }
  std::uint64_t workspace_bytes() const noexcept override { return 0; }

 private:
  struct Layout;

  ExpertRank rank_;
  std::int32_t top_k_;
  StepMemory& memory_;
  // State between the calls of a step.
  TensorView ids_;
  std::vector<std::int64_t> tokens_;  ///< of each dp rank
  expert_sort::Args sort_;
};

}  // namespace moecl
