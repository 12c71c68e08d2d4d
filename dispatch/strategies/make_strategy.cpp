#include <moecl/strategy.hpp>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// A strategy whose failures on one rank alone, before a meeting too, end the group.
class Together final : public Strategy {
 public:
  Together(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem, StepMemory* memory)
      : ranks_(rank.ep),
        begins_steps_(memory == nullptr),
        strategy_(make_alone(kind, rank, problem, memory != nullptr ? *memory : memory_)) {}

  StepNeeds needs(std::int64_t tokens) const override { return strategy_->needs(tokens); }
  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override { return strategy_->bytes(tokens); }
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override {
    if (begins_steps_) memory_.begin();
    return ranks_.together([&] { return strategy_->prepare(tokens, workspace); });
  }
  void begin_dispatch() override {
    ranks_.together([&] { strategy_->begin_dispatch(); });
  }
  void hook() override {
    ranks_.together([&] { strategy_->hook(); });
  }
  RoutedRows receive() override {
    return ranks_.together([&] { return strategy_->receive(); });
  }
  void begin_combine(TensorView expert_rows, TensorView sums) override {
    ranks_.together([&] { strategy_->begin_combine(expert_rows, sums); });
  }
  combine::Args finish_combine() override {
    return ranks_.together([&] { return strategy_->finish_combine(); });
  }
  std::uint64_t workspace_bytes() const noexcept override {
    return memory_.capacity_bytes() + strategy_->workspace_bytes();
  }

 private:
  static std::unique_ptr<Strategy> make_alone(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                              StepMemory& memory) {
    switch (kind) {
      case StrategyKind::mc2:
        return rank.peers.size() == 1 ? make_mc2(rank, problem, memory) : make_mc2_over_nodes(rank, problem, memory);
      case StrategyKind::all2all_v:
        return make_all2all_v(rank, problem, memory);
      default:
        return make_all_gather(rank, problem, kind == StrategyKind::multicast, memory);
    }
  }

  Communicator ranks_;
  StepMemory memory_;
  bool begins_steps_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                        StepMemory* memory) {
  Communicator ranks = rank.ep;
  return ranks.together([&] {
    Strategy::expect_possible(kind, rank, problem);
    return std::make_unique<Together>(kind, rank, problem, memory);
  });
}

std::unique_ptr<Strategy> Strategy::make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  return make_strategy(kind, rank, problem, nullptr);
}

}  // namespace moecl
