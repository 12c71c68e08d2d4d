#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace moecl {

/// The algorithm that computes new places of experts from measured loads.
enum class BalancePolicy : std::uint8_t {
  deepseek,        ///< DeepSeek's EPLB; hierarchical where `nodes` divides `expert_groups`
  vllm,            ///< vLLM's EPLB: quotients in f64, and an expert that stays on a rank keeps its place
  ascend_default,  ///< DefaultEplb of vllm-ascend
  ascend_swift,    ///< SwiftBalanceEplb of vllm-ascend: few moves, at most one between two ranks
  flashlb,         ///< FlashLB of vllm-ascend: by mean, variance and covariance of loads over stages
  moecl            ///< minimizes the load of the fullest rank; each move has a price
};
/// "deepseek"
const char* name(BalancePolicy policy) noexcept;
/// Errors: invalid_argument  no policy of that name
BalancePolicy balance_policy_from_name(std::string_view text);

/// Input of a policy. Rank r owns places [r * P / R, (r + 1) * P / R). Loads are tokens, in any unit.
struct BalanceProblem {
  std::int32_t layers = 1;   ///< L
  std::int32_t experts = 1;  ///< E: logical experts
  std::int32_t places = 1;   ///< P: physical places
  std::int32_t ranks = 1;    ///< R: divides P
  std::int32_t stages = 1;   ///< T: samples of the loads, oldest first
  /// deepseek, vllm, moecl: load of each expert; deepseek and vllm round it to f32. Shape: [L, E]
  std::vector<double> loads = {};
  /// The current table: the expert at each place; optional for deepseek, vllm and moecl. Shape: [L, P]
  std::vector<std::int32_t> current = {};
  /// flashlb, and with T = 1 ascend_default and ascend_swift: load counted at each place of `current`. Shape: [T, L, P]
  std::vector<double> place_loads = {};

  std::int32_t expert_groups = 1;       ///< deepseek, vllm: expert groups of the router
  std::int32_t nodes = 1;               ///< deepseek, vllm
  std::int32_t ranks_per_node = 0;      ///< ascend_swift: 0: all
  bool node_redundant = false;          ///< ascend_swift: copies stay on their node
  std::int32_t world_size = 0;          ///< flashlb: ranks of the group; 0: R
  double z_score = 0.6744897501960817;  ///< flashlb: risk = mean + z_score * standard deviation
  std::int32_t depth = 4;               ///< flashlb: blocks that experts are divided into
  std::int32_t width = 8;               ///< flashlb: place counts tried on each side of the greedy one
  std::int32_t sample_size = 64;        ///< flashlb: most blocks that stages are summed into
  /// moecl: what one move must gain, as a fraction of the mean load of a rank
  double move_price = 0.0005;
};

/// What flashlb keeps between calls: loads of earlier calls, and how even the last table of each layer was.
class BalanceHistory {
 public:
  BalanceHistory();
  ~BalanceHistory();
  BalanceHistory(BalanceHistory&&) noexcept;
  BalanceHistory& operator=(BalanceHistory&&) noexcept;
  struct State;
  State& state() const noexcept { return *state_; }  ///< for the policy alone

 private:
  std::unique_ptr<State> state_;
};

/// A new table, and the effect that is expected of it.
struct Balanced {
  std::vector<std::int32_t> logical_of;  ///< the expert at each place. Shape: [L, P]
  std::vector<std::int32_t> replicas;    ///< places of each expert. Shape: [L, E]
  /// The places of expert 0, then of expert 1, and so on; within an expert in the order of its copies. Shape: [L, P]
  std::vector<std::int32_t> places_of;
  bool changed = true;                       ///< ascend: the gain is worth the moves; flashlb: any layer gains
  std::vector<std::int32_t> layer_priority;  ///< ascend: layers by falling gain; flashlb: only layers that gain
  double load_before = 0;  ///< load of the fullest rank with `current`, summed over layers; 0 without `current`
  double load = 0;         ///< the same with the new table; the places of an expert share its load equally
  double mean_load = 0;    ///< mean load of a rank, summed over layers
  std::int64_t moves = 0;  ///< experts that a rank holds now and did not before, summed over ranks and layers
};

/// Computes new places for experts. Runs on the host; the only side effect is on `history`.
///
/// Without `current`, moves are counted from a table with expert p % E at place p.
/// @param history  flashlb: state of earlier calls, which this call updates. Null: this is the first call
/// Errors: invalid_argument  a field is missing, has a wrong size, is out of range or does not divide as it must
/// Source: deepseek-ai/EPLB, rebalance_experts; vLLM's DefaultEplbPolicy; vllm-ascend's DefaultEplb,
///         SwiftBalanceEplb and FlashLB
Balanced balance(BalancePolicy policy, const BalanceProblem& problem, BalanceHistory* history = nullptr);

}  // namespace moecl
