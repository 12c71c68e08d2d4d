#pragma once
// What the tokens of all ranks choose among one rank's experts: of a pass that looks ahead nothing else travels.
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

/// A strategy without a second half, whose rows have no hidden states: `receive` gives their row ends.
class GatheredChoices final : public Strategy {
 public:
  /// @param rank    of a queue beside the rank's stream, on which all is enqueued
  /// @param memory  of its steps, which their caller begins. Lifetime: outlives this
  GatheredChoices(const ExpertRank& rank, std::int32_t top_k, StepMemory& memory)
      : rank_(rank), top_k_(top_k), memory_(memory) {}

  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override;
  /// @param tokens  whose tokens_of_ranks is known
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
  // Between the steps.
  TensorView ids_;
  std::vector<std::int64_t> tokens_;  ///< of each dp rank
  expert_sort::Args sort_;
};

}  // namespace moecl
