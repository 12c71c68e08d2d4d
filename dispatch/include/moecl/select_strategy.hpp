#pragma once
#include <moecl/strategy.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// What the choice of a strategy depends on; every rank must give the same.
struct SelectStrategy {
  std::int32_t ep_size = 1, tp_size = 1;
  std::optional<std::int64_t> max_tokens = {};  ///< of the dp rank that has most; unset: nobody knows
  std::int64_t tokens_per_rank = 512;           ///< that an MC2 window is meant for
  ExpertSharding sharding = ExpertSharding::experts;
  std::int32_t ranks_per_node = 0;          ///< 0: all ranks are neighbours
  std::optional<StrategyKind> wanted = {};  ///< the caller's own choice
};

/// A strategy, and why it was chosen.
struct StrategyChoice {
  StrategyKind kind = StrategyKind::all_gather;
  std::string reason;
};

/// What is wanted; else all_gather for one rank or where experts are not whole, MC2 while the tokens are known to fit
/// its windows, else all2all_v. The reason also says what becomes of nodes. Source: vllm-ascend's choice for the A3
/// (910C)
StrategyChoice select_strategy(const SelectStrategy& problem);
/// Errors: invalid_argument  no strategy of that name
StrategyKind strategy_from_name(std::string_view text);

}  // namespace moecl
