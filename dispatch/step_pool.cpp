#include "dispatch/step_pool.hpp"

#include <fmt/format.h>

#include "dispatch/rank_group.hpp"
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// A key of what may differ between layers in the position of a rank.
std::string text_of(const ExpertRank& rank) {
  return fmt::format("dp {} tp {} node {} {} experts {} from {}", rank.dp.size(), rank.tp.size(), rank.node.size(),
                     name(rank.sharding), rank.experts, rank.ep_first_expert);
}

std::string text_of(const ExpertProblem& problem) {
  const OperandQuant& codes = problem.codes;
  return fmt::format("hidden {} top_k {} {} wire {} {} {} {} {} batched {} room {}", problem.hidden, problem.top_k,
                     name(problem.dtype), name(problem.wire), describe(codes), static_cast<int>(codes.rounding),
                     codes.most_amax, codes.least_scale, problem.batched, problem.room);
}

}  // namespace

std::shared_ptr<StepPool> StepPool::of(const Communicator& ranks) { return ranks.pool(); }

std::shared_ptr<StepPool> Communicator::pool() const {
  std::weak_ptr<StepPool>& kept = group_->rank(members_[static_cast<std::size_t>(rank_)]).pools[members_];
  std::shared_ptr<StepPool> pool = kept.lock();
  if (pool == nullptr) kept = pool = std::make_shared<StepPool>();
  return pool;
}

Strategy& StepPool::strategy(std::size_t lane, StrategyKind kind, const ExpertRank& rank, bool beside,
                             const ExpertProblem& problem) {
  Lane& of = lanes_[lane];
  const std::string grid = text_of(rank),
                    all = fmt::format("{} {} {} {}", name(kind), beside ? "beside" : "", grid, text_of(problem));
  for (const Made& made : of.strategies)
    if (made.of == all) return *made.strategy;
  const ExpertRank* on = &rank;
  if (beside) {
    for (const auto& [known, with_queue] : of.beside)
      if (known == grid) on = &with_queue;
    if (on == &rank) on = &of.beside.emplace_back(grid, rank.beside()).second;
  }
  return *of.strategies.emplace_back(Made{all, make_strategy(kind, *on, problem, &of.memory)}).strategy;
}

std::uint64_t StepPool::capacity_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Lane& lane : lanes_) {
    bytes += lane.memory.capacity_bytes();
    for (const Made& made : lane.strategies) bytes += made.strategy->workspace_bytes();
  }
  return bytes;
}

}  // namespace moecl
