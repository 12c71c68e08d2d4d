#pragma once
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>

#include <numeric>
#include <string>
#include <vector>

namespace moecl::test::oracle {

/// The result of the stand-in for expert e for one element, in f32.
double expert(double x, std::int64_t e);

/// A random group of ranks, the tokens of all dp ranks, one rank after the other, and the expected results.
struct StrategyProblem {
  std::int32_t ranks, tp, experts, top_k;
  std::int64_t hidden;
  DType dtype;
  std::vector<std::int64_t> tokens;  ///< of each dp rank
  std::vector<double> x, weights;    ///< [T, H], [T, K]
  std::vector<std::int32_t> ids;     ///< [T, K]
  PlaceExperts placing;
  std::vector<std::int32_t> expert_at;  ///< [P]
  std::vector<std::int32_t> physical;   ///< [T, K] places
  WireFormat wire = WireFormat::none;
  std::int32_t ranks_per_node;  ///< `ranks`: one node
  ExpertOutput expert_output = ExpertOutput::rows;
  std::string text;

  /// Has seed % 8 + 1 ranks. Every seed gives another mix of shapes, routing, placement, wire and nodes.
  explicit StrategyProblem(std::uint64_t seed);

  std::int64_t total() const { return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}); }
  std::int64_t first_token(std::int32_t dp_rank) const {
    return std::accumulate(tokens.begin(), tokens.begin() + dp_rank, std::int64_t{0});
  }
  std::int32_t places() const { return static_cast<std::int32_t>(expert_at.size()); }
  /// Whether rows travel in two levels, between nodes and within them.
  bool over_nodes(StrategyKind kind) const { return kind == StrategyKind::mc2 && ranks_per_node < ranks; }
  bool experts_weight() const { return expert_output != ExpertOutput::rows; }
  bool experts_sum() const { return expert_output == ExpertOutput::sums; }
  /// Whether MC2 brings home a sum from each rank instead of a row from each expert.
  bool sums_home(WireFormat of_results) const {
    return experts_sum() || (dtype != DType::f32 && of_results != WireFormat::int8);
  }
  /// Whether the sums have the order of a single rank, and nothing is rounded in transit.
  bool is_exact(StrategyKind kind) const {
    if (wire != WireFormat::none || over_nodes(kind)) return false;
    return kind == StrategyKind::all2all_v || (kind == StrategyKind::mc2 && !sums_home(wire));
  }

  struct Rows {
    std::vector<double> ends, x;
    std::vector<double> error;  ///< as x: how far the wire format may put an element off
    std::vector<std::int64_t> experts;
    std::vector<double> weights;
  };
  /// The rows that a rank's experts get, in the order expert, source rank, token. Over nodes the order is expert, index
  /// of the source in its node, node, token. Shares of a tp group are consecutive tokens.
  Rows dispatched(StrategyKind kind, std::int32_t rank) const;
  /// [T, H] of a dp rank, summed with k ascending, in f32 steps or in double precision.
  std::vector<double> output(std::int32_t dp_rank, bool in_f32) const;
  /// [T, H] how far the output may be off: the most that the wire's roundings and another order of f32 sums make.
  std::vector<double> output_error(StrategyKind kind, std::int32_t dp_rank) const;

  /// Bytes of a hidden state on the wire.
  std::int64_t row_bytes() const;
  struct Bytes {
    std::int64_t all = 0, between_nodes = 0;
  };
  /// Bytes that `rank` receives in both halves, from each strategy's description in dispatch/STRATEGIES.md.
  /// `between_nodes` is for mc2 only. @param reduced  whether tp ranks get whole sums, not parts of them
  Bytes received(StrategyKind kind, std::int32_t rank, bool reduced = true) const;
  /// Bytes of mc2 that does not know of nodes; `from_other_nodes`: only the bytes from other nodes.
  std::int64_t flat_mc2(std::int32_t rank, bool from_other_nodes) const;

 private:
  std::int64_t id(std::int64_t token, std::int64_t k) const { return ids[static_cast<std::size_t>(token * top_k + k)]; }
  std::int64_t place(std::int64_t token, std::int64_t k) const {
    return physical[static_cast<std::size_t>(token * top_k + k)];
  }
  double at(std::int64_t token, std::int64_t h) const { return x[static_cast<std::size_t>(token * hidden + h)]; }
  std::int32_t owner(std::int64_t place) const;
  /// Number of tokens in this ep rank's share.
  std::int64_t own_tokens(std::int32_t rank) const;
  std::int64_t first_own_token(std::int32_t rank) const;
  double wire_error(std::int64_t token, std::int64_t h) const;
  std::int64_t home_row_bytes() const;
  /// Bytes of a token to a rank, with ids and the weights needed there; and what comes back, in rows of `row` bytes.
  std::int64_t mc2_there(bool sums) const { return row_bytes() + top_k * (sums || experts_weight() ? 8 : 4); }
  std::int64_t mc2_back(bool sums, std::int64_t row) const { return sums ? row : top_k * row; }
  std::int64_t gathered_outputs(std::int32_t rank, bool from_other_nodes) const;
  Bytes received_over_nodes(std::int32_t rank) const;
  Bytes received_whole(StrategyKind kind, std::int32_t rank) const;
  void choose_experts(std::uint64_t seed);
  void place_experts(std::uint64_t seed);
};

}  // namespace moecl::test::oracle
