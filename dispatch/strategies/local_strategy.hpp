#pragma once
// The strategy of a single rank. It has every expert, so tokens are only sorted, and nothing is exchanged.
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

/// Makes no allocation and uses only memory of its caller, so every pass may have its own.
class LocalStrategy final : public Strategy {
 public:
  LocalStrategy(StreamView stream, std::int32_t experts, const ExpertProblem& problem)
      : stream_(stream), experts_(experts), problem_(problem) {}

  StepNeeds needs(std::int64_t tokens) const override;
  /// Without the workspace, which is the caller's: see `needs`.
  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override;
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override;
  void begin_dispatch() override {}
  RoutedRows receive() override;
  void begin_combine(TensorView expert_rows, TensorView sums) override;
  combine::Args finish_combine() override;
  std::uint64_t workspace_bytes() const noexcept override { return 0; }

 private:
  struct Layout;

  StreamView stream_;
  std::int32_t experts_;
  ExpertProblem problem_;
  // State between the calls of a step.
  TokensIn tokens_;
  BufferView memory_;
  expert_sort::Args sort_;
  TensorView expert_rows_;
};

}  // namespace moecl
