#pragma once
#include <moecl/strategy.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// The rules that choose a strategy: those of vllm-ascend for a kind of machine, or moecl's own.
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

/// Input of select_strategy. Every rank must give the same.
struct SelectStrategy {
  std::int32_t ep_size = 1, tp_size = 1;
  std::optional<std::int64_t> max_tokens = {};  ///< most tokens of a dp rank; unset: unknown
  std::int64_t tokens_per_rank = 512;           ///< tokens of a rank that an MC2 window is meant for
  ExpertSharding sharding = ExpertSharding::experts;
  std::int32_t ranks_per_node = 0;          ///< 0: all ranks are neighbours
  std::optional<StrategyKind> wanted = {};  ///< the caller's own choice
  StrategyRules rules = StrategyRules::a3;
  std::int32_t experts = 0;  ///< logical experts of the model: a2 uses their number for each rank
  std::int32_t top_k = 0;    ///< a5 and moecl compare it with the number of ranks
  bool put_windows = false;  ///< for moecl: kernels can store into the memory of all peers
};

/// A strategy, and why it was chosen.
struct StrategyChoice {
  StrategyKind kind = StrategyKind::all_gather;
  std::string reason;
};

/// Returns `wanted` if it is set. Otherwise all_gather for one rank, or where each rank has a part of every expert.
/// Otherwise the rules decide. The reason also says how nodes are treated. Errors: invalid_argument  a count is out of
/// range
/// Source: vllm-ascend's select_moe_comm_method, without its fused operators
StrategyChoice select_strategy(const SelectStrategy& problem);
/// Most tokens of a dp rank that fit windows of MC2: tp_size times the tokens of one tp rank. A tp rank has its share
/// of max_num_batched_tokens, but at most tokens_per_rank. Source: vllm-ascend's mc2_tokens_capacity
std::int64_t mc2_tokens_capacity(std::int64_t max_num_batched_tokens, std::int32_t tp_size,
                                 std::int64_t tokens_per_rank = 512);
/// Errors: invalid_argument  no strategy of that name
StrategyKind strategy_from_name(std::string_view text);

}  // namespace moecl
