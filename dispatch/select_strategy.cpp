#include <moecl/select_strategy.hpp>

#include "runtime/check.hpp"

namespace moecl {

StrategyChoice select_strategy(const SelectStrategy& problem) {
  require(problem.ep_size >= 1 && problem.tp_size >= 1 && problem.max_tokens >= 0 && problem.tokens_per_rank >= 1,
          "select_strategy: ep {}, tp {}, {} tokens, {} a rank", problem.ep_size, problem.tp_size, problem.max_tokens,
          problem.tokens_per_rank);
  if (problem.ep_size == 1) return {StrategyKind::all_gather, "one rank: nothing to exchange"};
  if (problem.sharding == ExpertSharding::intermediate)
    return {StrategyKind::all_gather, "every rank has a part of every expert, so all need all tokens"};
  const std::int64_t capacity = problem.tokens_per_rank * problem.tp_size;
  if (problem.max_tokens <= capacity)
    return {StrategyKind::mc2,
            fmt::format("at most {} tokens a dp rank fit windows of {}", problem.max_tokens, capacity)};
  return {StrategyKind::all2all_v,
          fmt::format("{} tokens on a dp rank exceed MC2's windows of {}", problem.max_tokens, capacity)};
}

StrategyKind strategy_from_name(std::string_view text) {
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast})
    if (text == name(kind)) return kind;
  fail(ErrorCode::invalid_argument, "strategy: '{}' is none of mc2, allgather, all2allv, multicast", text);
}

}  // namespace moecl
