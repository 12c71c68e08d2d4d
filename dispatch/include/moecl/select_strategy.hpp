#pragma once
#include <moecl/strategy.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// By which rules a strategy is chosen: those of vllm-ascend for a kind of machine, or what was measured here.
enum class StrategyRules : std::uint8_t {
  a2,    ///< 910B
  a3,    ///< 910C
  a5,    ///< 950
  p310,  ///< "310p"
  moecl  ///< measured with this library: dispatch/STRATEGIES.md
};
/// "a2", "a3", "a5", "310p", "moecl"
const char* name(StrategyRules rules) noexcept;
/// Errors: invalid_argument  no rules of that name
StrategyRules strategy_rules_from_name(std::string_view text);

/// What the choice of a strategy depends on; every rank must give the same.
struct SelectStrategy {
  std::int32_t ep_size = 1, tp_size = 1;
  std::optional<std::int64_t> max_tokens = {};  ///< of the dp rank that has most; unset: nobody knows
  std::int64_t tokens_per_rank = 512;           ///< that an MC2 window is meant for
  ExpertSharding sharding = ExpertSharding::experts;
  std::int32_t ranks_per_node = 0;          ///< 0: all ranks are neighbours
  std::optional<StrategyKind> wanted = {};  ///< the caller's own choice
  StrategyRules rules = StrategyRules::a3;
  std::int32_t experts = 0;  ///< of the model, the logical ones: a2 asks how many a rank has
  std::int32_t top_k = 0;    ///< a5 and moecl compare it with the ranks
  bool put_windows = false;  ///< moecl asks whether kernels store into the memory of all peers
};

/// A strategy, and why it was chosen.
struct StrategyChoice {
  StrategyKind kind = StrategyKind::all_gather;
  std::string reason;
};

/// What is wanted; else all_gather for one rank or where experts are not whole; else what the rules say. The reason
/// also says what becomes of nodes. Errors: invalid_argument  a count is out of range Source: vllm-ascend's
/// select_moe_comm_method, without its fused operators
StrategyChoice select_strategy(const SelectStrategy& problem);
/// Tokens of a dp rank that fit windows of MC2, of a batch of so many at most: its share of a tp rank, up to 512, for
/// each of them. Source: vllm-ascend's mc2_tokens_capacity
std::int64_t mc2_tokens_capacity(std::int64_t max_num_batched_tokens, std::int32_t tp_size,
                                 std::int64_t tokens_per_rank = 512);
/// Errors: invalid_argument  no strategy of that name
StrategyKind strategy_from_name(std::string_view text);

}  // namespace moecl
