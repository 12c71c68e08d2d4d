#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace moecl {

/// Who places experts anew for loads that were counted.
enum class BalancePolicy : std::uint8_t {
  deepseek,        ///< EPLB of DeepSeek, hierarchical where nodes divide the router's groups
  vllm,            ///< the same as vLLM has it: quotients in f64, and experts keep their places on a rank
  ascend_default,  ///< DefaultEplb of vllm-ascend
  ascend_swift,    ///< SwiftBalanceEplb of vllm-ascend: few moves, at most one for two ranks
  flashlb,         ///< FlashLB of vllm-ascend: mean, variance and covariance over stages
  moecl            ///< the least load of the fullest rank, with moves at a price
};
/// "deepseek"
const char* name(BalancePolicy policy) noexcept;
/// Errors: invalid_argument  no policy of that name
BalancePolicy balance_policy_from_name(std::string_view text);

/// What a policy goes by. Rank r owns places [r * P / R, (r + 1) * P / R). Loads are tokens, in any unit.
struct BalanceProblem {
  std::int32_t layers = 1;   ///< L
  std::int32_t experts = 1;  ///< E: logical ones
  std::int32_t places = 1;   ///< P
  std::int32_t ranks = 1;    ///< R, which divides P
  std::int32_t stages = 1;   ///< T, oldest first
  /// deepseek, vllm, moecl. Shape: [L, E]; taken as f32 by the first two
  std::vector<double> loads = {};
  /// The table in force; optional for deepseek, vllm and moecl. Shape: [L, P]
  std::vector<std::int32_t> current = {};
  /// ascend_default and ascend_swift: T = 1; flashlb. Load counted at each place of `current`. Shape: [T, L, P]
  std::vector<double> place_loads = {};

  std::int32_t expert_groups = 1;       ///< deepseek, vllm: of the router
  std::int32_t nodes = 1;               ///< deepseek, vllm
  std::int32_t ranks_per_node = 0;      ///< ascend_swift: of a node's; 0: all
  bool node_redundant = false;          ///< ascend_swift: copies stay on their node
  std::int32_t world_size = 0;          ///< flashlb: ranks of the group; 0: R
  double z_score = 0.6744897501960817;  ///< flashlb: standard deviations that a risk counts
  std::int32_t depth = 4;               ///< flashlb: blocks of experts
  std::int32_t width = 8;               ///< flashlb: counts tried to each side
  std::int32_t sample_size = 64;        ///< flashlb: blocks of stages
  /// moecl: how much of the mean load of a rank a move has to gain
  double move_price = 0.0005;
};

/// What flashlb remembers from one call to the next. The ranks' tables and loads of old calls.
class BalanceHistory {
 public:
  BalanceHistory();
  ~BalanceHistory();
  BalanceHistory(BalanceHistory&&) noexcept;
  BalanceHistory& operator=(BalanceHistory&&) noexcept;
  struct State;
  State& state() const noexcept { return *state_; }  ///< of the policy's own

 private:
  std::unique_ptr<State> state_;
};

/// A new table, and what it is expected to bring.
struct Balanced {
  std::vector<std::int32_t> logical_of;  ///< the expert at each place. Shape: [L, P]
  std::vector<std::int32_t> replicas;    ///< places of each expert. Shape: [L, E]
  /// Each expert's places one after the other, in the order of its copies. Shape: [L, P]
  std::vector<std::int32_t> places_of;
  bool changed = true;                       ///< ascend: whether it is worth moving; flashlb: whether any layer is
  std::vector<std::int32_t> layer_priority;  ///< ascend: layers, the most gain first; flashlb: those alone that gain
  double load_before = 0;  ///< of the fullest rank, summed over layers, by the table in force; 0 without one
  double load = 0;         ///< the same by the new table: an expert's load is shared equally by its places
  double mean_load = 0;    ///< of a rank, summed over layers
  std::int64_t moves = 0;  ///< experts that ranks hold now and did not before, over layers
};

/// Experts at new places. Pure but for `history`; no device is asked.
///
/// Without `current` moves count from expert p % E at place p.
/// @param history  Of flashlb: of earlier calls; changed. Null: this is the first
/// Errors: invalid_argument  what is missing, has another size, is out of range or does not divide
/// Source: deepseek-ai/EPLB, rebalance_experts; vLLM's DefaultEplbPolicy; vllm-ascend's DefaultEplb,
///         SwiftBalanceEplb and FlashLB
Balanced balance(BalancePolicy policy, const BalanceProblem& problem, BalanceHistory* history = nullptr);

}  // namespace moecl
