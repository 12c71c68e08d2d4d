#pragma once
// The distributed operators by definition: every row is searched among all pairs of all ranks.
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// The inputs of one rank.
struct DistributeRank {
  std::int64_t tokens = 0;
  std::vector<std::int32_t> ids;  ///< [T, K]
  std::vector<bool> pair_active;  ///< [T, K]
  std::vector<bool> active;       ///< [T]
  std::vector<double> x;          ///< [T, H]
  std::vector<double> weights;    ///< [T, K]
};

struct DistributeGroup {
  std::int32_t experts = 0, zero = 0, copy = 0, consts = 0, shared = 0, shared_ranks = 0, top_k = 1;
  std::int64_t hidden = 0;
  std::vector<DistributeRank> ranks;

  std::int32_t size() const { return static_cast<std::int32_t>(ranks.size()); }
  std::int32_t local_experts(std::int32_t rank) const {
    return rank < shared_ranks ? 1 : experts / (size() - shared_ranks);
  }
};

/// A row that arrives at a rank: its local expert there, and the source rank, token and column that it comes from.
struct DistributedRow {
  std::int32_t expert, source, column;
  std::int64_t token;
};
/// All rows of a rank in the order expert, source rank, token.
std::vector<DistributedRow> dispatched_rows(const DistributeGroup& group, std::int32_t rank);
/// The rank that the pair's row goes to; -1 if to none.
std::int32_t destination(const DistributeGroup& group, std::int32_t source, std::int64_t token, std::int32_t column);

/// What decides how many bytes a rank receives from others, as dispatch/STRATEGIES.md says for the operators.
struct DistributeBytes {
  std::int32_t per_server = 0;     ///< ranks of a server; 0: fullmesh
  std::int64_t row = 0;            ///< bytes of a row in transit: codes with their scales
  std::int64_t capacity = 0;       ///< of combine: the most rows between two ranks
  std::int64_t partial = 0;        ///< of combine over servers: bytes of a sum
  bool weights = false;            ///< of dispatch: weights travel
  bool sources = false;            ///< of dispatch: the source token of a row travels. Of combine: it is checked
  bool row_for_each_pair = false;  ///< of dispatch over servers: codes depend on the expert, so pairs share no row
};
std::int64_t dispatch_bytes(const DistributeGroup& group, std::int32_t rank, const DistributeBytes& of);
std::int64_t combine_bytes(const DistributeGroup& group, std::int32_t rank, const DistributeBytes& of);

/// A row that an expert of a token computed, and its weight. A token's terms are in column order.
struct CombineTerm {
  double weight;
  std::vector<double> row;
};
/// f32 sums in order, each product rounded, too; no storage rounding. @param last  [H] with weight 1, or empty
std::vector<double> combined(const std::vector<CombineTerm>& terms, const std::vector<double>& last,
                             std::int64_t hidden);

}  // namespace moecl::test::oracle
