#pragma once
#include <moecl/strategy.hpp>

#include <cstdint>
#include <optional>

namespace moecl {

/// How a pass over ranks goes, as all of them say alike.
struct Step {
  /// Unset: the plan's. Another one runs over the same weights: decoding by mc2 and prefill by all2all_v, for instance.
  std::optional<StrategyKind> strategy = {};
  /// False: what the ranks of a tp group get are parts of `out`, `routed_out` and `shared_out`: added up they are what
  /// each would get. Nothing travels within the group for them. Source: reduce_results of vLLM
  bool reduce_results = true;
  /// Tokens of the dp rank that has most. Unset: ranks tell each other where chunks or micro-batches depend on it.
  std::optional<std::int64_t> max_tokens_across_dp = {};
};

}  // namespace moecl
