#include <moecl/strategy.hpp>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// A strategy whose failures on one rank alone, before a meeting too, end the group.
class Together final : public Strategy {
 public:
  Together(const Communicator& ranks, std::unique_ptr<Strategy> strategy)
      : ranks_(ranks), strategy_(std::move(strategy)) {}

  StepNeeds needs(std::int64_t tokens) const override { return strategy_->needs(tokens); }
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override {
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
  std::uint64_t workspace_bytes() const noexcept override { return strategy_->workspace_bytes(); }

 private:
  Communicator ranks_;
  std::unique_ptr<Strategy> strategy_;
};

std::unique_ptr<Strategy> make_alone(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  switch (kind) {
    case StrategyKind::mc2:
      return rank.peers.size() == 1 ? make_mc2(rank, problem) : make_mc2_over_nodes(rank, problem);
    case StrategyKind::all2all_v:
      return make_all2all_v(rank, problem);
    default:
      return make_all_gather(rank, problem, kind == StrategyKind::multicast);
  }
}

}  // namespace

std::unique_ptr<Strategy> Strategy::make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  Communicator ranks = rank.ep;
  return ranks.together([&] {
    expect_possible(kind, rank, problem);
    return std::make_unique<Together>(ranks, make_alone(kind, rank, problem));
  });
}

}  // namespace moecl
