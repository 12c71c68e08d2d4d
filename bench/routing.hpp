#pragma once
// Which experts the tokens of a benchmark go to.
#include <cstdint>
#include <string>
#include <vector>

namespace moecl::bench {

/// Expert ids of T tokens, and the same routing in the form that the expert products take.
struct Routing {
  std::int64_t tokens = 0, top_k = 0;
  std::vector<std::int32_t> ids;           ///< Shape: [T, K], distinct within a token
  std::vector<std::int32_t> sorted_slots;  ///< Shape: [T * K]: t * K + k, ordered by expert
  std::vector<std::int32_t> row_ends;      ///< Shape: [E], cumulative
  std::int64_t active_experts = 0;
};

/// "uniform"; "zipf", where the seed orders the experts and the r-th is drawn in proportion to 1 / r; or the path of a
/// file that `moecl run --output` or `--record` wrote, whose tokens are repeated.
struct RoutingSource {
  std::string name = "uniform";
  std::uint64_t seed = 0;
  std::vector<std::int32_t> recorded;  ///< of a file. Shape: [T', K']
  std::int64_t recorded_top_k = 0;

  /// Errors: io_error, invalid_data  a file without i32 topk_ids or layer.N.topk_ids [T', K'], T' > 0
  static RoutingSource named(const std::string& name, std::uint64_t seed);
  bool replays() const { return recorded_top_k != 0; }
  /// Errors: invalid_data  the recorded ids do not fit that many experts or choices
  Routing route(std::int64_t tokens, std::int64_t top_k, std::int32_t experts) const;
};

}  // namespace moecl::bench
