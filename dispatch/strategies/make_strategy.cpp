#include <moecl/index_vectors.hpp>
#include <moecl/strategy.hpp>

#include <fmt/format.h>

#include <type_traits>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// A strategy of which any failure ends the group, even one on a single rank before a meeting.
class Together final : public Strategy {
 public:
  Together(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem, StepMemory* memory)
      : ranks_(rank.ep),
        experts_(rank.experts),
        dispatch_(fmt::format("dispatch by {}", name(kind))),
        combine_(fmt::format("combine by {}", name(kind))),
        begins_steps_(memory == nullptr),
        strategy_(make_alone(kind, rank, problem, memory != nullptr ? *memory : memory_)) {}

  StepNeeds needs(std::int64_t tokens) const override { return strategy_->needs(tokens); }
  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override { return strategy_->bytes(tokens); }
  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView workspace) override {
    if (begins_steps_) memory_.begin();
    return in(dispatch_, [&] {
      if (tokens.ids.dtype != DType::i64) return strategy_->prepare(tokens, workspace);
      TokensIn narrow = tokens;
      narrow.ids = narrow_ids(tokens.ids);
      const auto sort = strategy_->prepare(narrow, workspace);  // ranks agree before anything is enqueued
      const TensorView to(narrow.ids.buffer, DType::i32, {narrow.ids.elements()});
      index_vectors::enqueue(ranks_.rank_stream(),
                             index_vectors::Narrow{tokens.ids, -1, experts_, -1, {}, to, tokens.fault});
      return sort;
    });
  }
  void begin_dispatch() override {
    in(dispatch_, [&] { strategy_->begin_dispatch(); });
  }
  void hook() override {
    in(dispatch_, [&] { strategy_->hook(); });
  }
  RoutedRows receive() override {
    return in(dispatch_, [&] { return strategy_->receive(); });
  }
  void begin_combine(TensorView expert_rows, TensorView sums) override {
    in(combine_, [&] { strategy_->begin_combine(expert_rows, sums); });
  }
  combine::Args finish_combine() override {
    return in(combine_, [&] { return strategy_->finish_combine(); });
  }
  std::uint64_t workspace_bytes() const noexcept override {
    return memory_.capacity_bytes() + ids_.capacity_bytes() + strategy_->workspace_bytes();
  }

 private:
  /// Memory for the ids in 32 bits.
  TensorView narrow_ids(const TensorView& ids) {
    const auto bytes = static_cast<std::uint64_t>(ids.elements()) * sizeof(std::int32_t);
    return {ids_.reserve(*ranks_.rank_stream().context, bytes), DType::i32, {ids.shape[0], ids.shape[1]}};
  }
  /// Publishes the name of the half to other processes, in case this process dies in it.
  template <class Body>
  std::invoke_result_t<const Body&> in(const std::string& half, const Body& body) {
    std::string& phase = Communicator::Exchange(ranks_).me.phase;
    phase = half;
    struct Left {
      std::string& phase;
      ~Left() { phase.clear(); }
    } const left{phase};
    return ranks_.together(body);
  }
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
  std::int32_t experts_;
  std::string dispatch_, combine_;
  Workspace ids_;  ///< i32 ids of a step that brings them in 64 bits
  StepMemory memory_;
  bool begins_steps_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                        StepMemory* memory) {
  return rank.ep.together([&] {
    Strategy::expect_possible(kind, rank, problem);
    return std::make_unique<Together>(kind, rank, problem, memory);
  });
}

std::unique_ptr<Strategy> Strategy::make(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  return make_strategy(kind, rank, problem, nullptr);
}

}  // namespace moecl
