#include <moecl/select_strategy.hpp>

#include "runtime/check.hpp"

namespace moecl {

namespace {

StrategyChoice choose(const SelectStrategy& problem) {
  if (problem.wanted) return {*problem.wanted, "asked for"};
  if (problem.ep_size == 1) return {StrategyKind::all_gather, "one rank: nothing to exchange"};
  if (problem.sharding == ExpertSharding::intermediate)
    return {StrategyKind::all_gather, "every rank has a part of every expert, so all need all tokens"};
  if (!problem.max_tokens)
    return {StrategyKind::all2all_v, "nobody says how many tokens will come, and it moves as few bytes for any number"};
  const std::int64_t tokens = *problem.max_tokens, capacity = problem.tokens_per_rank * problem.tp_size;
  if (tokens <= capacity)
    return {StrategyKind::mc2, fmt::format("at most {} tokens a dp rank fit windows of {}", tokens, capacity)};
  return {StrategyKind::all2all_v, fmt::format("{} tokens on a dp rank exceed MC2's windows of {}", tokens, capacity)};
}

}  // namespace

StrategyChoice select_strategy(const SelectStrategy& problem) {
  const std::int64_t tokens = problem.max_tokens.value_or(0);
  require(problem.ep_size >= 1 && problem.tp_size >= 1 && tokens >= 0 && problem.tokens_per_rank >= 1,
          "select_strategy: ep {}, tp {}, {} tokens, {} a rank", problem.ep_size, problem.tp_size, tokens,
          problem.tokens_per_rank);
  require(problem.ranks_per_node >= 0 && (problem.ranks_per_node == 0 || problem.ep_size % problem.ranks_per_node == 0),
          "select_strategy: nodes of {} do not divide {} ranks", problem.ranks_per_node, problem.ep_size);
  StrategyChoice choice = choose(problem);
  const std::int32_t nodes = problem.ranks_per_node == 0 ? 1 : problem.ep_size / problem.ranks_per_node;
  if (nodes > 1)
    choice.reason +=
        fmt::format("; over {} nodes of {} ranks {}", nodes, problem.ranks_per_node,
                    choice.kind == StrategyKind::mc2 ? "in two levels, so that a token crosses to a node once"
                                                     : "as if they were one, since only mc2 has two levels");
  return choice;
}

StrategyKind strategy_from_name(std::string_view text) {
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast})
    if (text == name(kind)) return kind;
  fail(ErrorCode::invalid_argument, "strategy: '{}' is none of mc2, allgather, all2allv, multicast", text);
}

}  // namespace moecl
