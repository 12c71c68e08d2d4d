#include <moecl/select_strategy.hpp>

#include <algorithm>

#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

namespace {

constexpr StrategyRules all_rules[] = {StrategyRules::a2, StrategyRules::a3, StrategyRules::a5, StrategyRules::p310,
                                       StrategyRules::moecl};

/// A strategy, and all conditions for it. The first rule of a set whose conditions hold decides.
struct Rule {
  StrategyRules of;
  StrategyKind then;
  bool fits_windows = false;       ///< the number of tokens is known and fits MC2's windows
  double most_experts_a_rank = 0;  ///< 0: any
  std::int32_t least_ranks = 0;
  bool ranks_up_to_top_k = false;
  bool put_windows = false;
};
constexpr Rule rules[] = {
    {.of = StrategyRules::a2,
     .then = StrategyKind::mc2,
     .fits_windows = true,
     .most_experts_a_rank = 24,
     .least_ranks = 16},
    {.of = StrategyRules::a2, .then = StrategyKind::all_gather},
    {.of = StrategyRules::a3, .then = StrategyKind::mc2, .fits_windows = true},
    {.of = StrategyRules::a3, .then = StrategyKind::all2all_v},
    {.of = StrategyRules::a5, .then = StrategyKind::mc2, .fits_windows = true, .least_ranks = 2},
    {.of = StrategyRules::a5, .then = StrategyKind::all_gather, .ranks_up_to_top_k = true},
    {.of = StrategyRules::a5, .then = StrategyKind::all2all_v},
    {.of = StrategyRules::p310, .then = StrategyKind::all_gather},
    {.of = StrategyRules::moecl, .then = StrategyKind::mc2, .put_windows = true},
    {.of = StrategyRules::moecl, .then = StrategyKind::all_gather, .ranks_up_to_top_k = true},
    {.of = StrategyRules::moecl, .then = StrategyKind::mc2, .fits_windows = true},
    {.of = StrategyRules::moecl, .then = StrategyKind::all2all_v},
};

std::int64_t capacity_of(const SelectStrategy& problem) { return problem.tokens_per_rank * problem.tp_size; }

bool fits(const SelectStrategy& problem) { return problem.max_tokens && *problem.max_tokens <= capacity_of(problem); }

/// Whether a rule's conditions hold, and the facts in words: "; 32 experts a rank, more than 24". Empty: no conditions.
struct Judged {
  bool holds = true;
  std::string facts;

  void ask(bool so, std::string fact) {
    holds = holds && so;
    facts += "; " + std::move(fact);
  }
};

Judged judge(const Rule& rule, const SelectStrategy& problem) {
  const std::int32_t ranks = problem.ep_size;
  Judged judged;
  if (rule.put_windows)
    judged.ask(problem.put_windows,
               problem.put_windows ? "kernels store into the memory of all peers" : "kernels do not reach all peers");
  if (rule.fits_windows) {
    const std::int64_t capacity = capacity_of(problem);
    if (!problem.max_tokens)
      judged.ask(false, "nobody says how many tokens will come");
    else if (fits(problem))
      judged.ask(true, fmt::format("at most {} tokens a dp rank fit windows of {}", *problem.max_tokens, capacity));
    else
      judged.ask(false,
                 fmt::format("{} tokens on a dp rank exceed MC2's windows of {}", *problem.max_tokens, capacity));
  }
  if (rule.most_experts_a_rank != 0)
    judged.ask(problem.experts <= rule.most_experts_a_rank * ranks,
               fmt::format("{:.4g} experts a rank, {} {}", static_cast<double>(problem.experts) / ranks,
                           problem.experts <= rule.most_experts_a_rank * ranks ? "at most" : "more than",
                           rule.most_experts_a_rank));
  if (rule.least_ranks != 0)
    judged.ask(
        ranks >= rule.least_ranks,
        fmt::format("{} ranks, {} {}", ranks, ranks >= rule.least_ranks ? "at least" : "fewer than", rule.least_ranks));
  if (rule.ranks_up_to_top_k)
    judged.ask(ranks <= problem.top_k, fmt::format("{} ranks, {} than the {} experts of a token", ranks,
                                                   ranks <= problem.top_k ? "no more" : "more", problem.top_k));
  return judged;
}

StrategyChoice choose(const SelectStrategy& problem) {
  if (problem.wanted) return {*problem.wanted, "asked for"};
  if (problem.ep_size == 1) return {StrategyKind::all_gather, "one rank: nothing to exchange"};
  if (problem.sharding == ExpertSharding::intermediate)
    return {StrategyKind::all_gather, "every rank has a part of every expert, so all need all tokens"};
  StrategyChoice choice;
  choice.reason = fmt::format("rules {}", name(problem.rules));
  for (const Rule& rule : rules) {
    if (rule.of != problem.rules) continue;
    const Judged judged = judge(rule, problem);
    if (judged.holds) {  // its own facts; without conditions: why the others fail
      choice.kind = rule.then;
      if (!judged.facts.empty()) choice.reason = fmt::format("rules {}{}", name(problem.rules), judged.facts);
      return choice;
    }
    choice.reason += judged.facts;
  }
  return choice;
}

}  // namespace

const char* name(StrategyRules rules_of) noexcept {
  switch (rules_of) {
    case StrategyRules::a2:
      return "a2";
    case StrategyRules::a3:
      return "a3";
    case StrategyRules::a5:
      return "a5";
    case StrategyRules::p310:
      return "310p";
    case StrategyRules::moecl:
      break;
  }
  return "moecl";
}

StrategyRules strategy_rules_from_name(std::string_view text) {
  for (const StrategyRules known : all_rules)
    if (text == name(known)) return known;
  fail(ErrorCode::invalid_argument, "rules: '{}' is none of a2, a3, a5, 310p, moecl", text);
}

std::int64_t mc2_tokens_capacity(std::int64_t max_num_batched_tokens, std::int32_t tp_size,
                                 std::int64_t tokens_per_rank) {
  require(max_num_batched_tokens >= 0 && tp_size >= 1 && tokens_per_rank >= 1,
          "mc2_tokens_capacity: {} tokens, tp {}, {} a rank", max_num_batched_tokens, tp_size, tokens_per_rank);
  return std::min(quotient_up(max_num_batched_tokens, tp_size), tokens_per_rank) * tp_size;
}

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
