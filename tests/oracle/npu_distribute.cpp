#include "tests/oracle/npu_distribute.hpp"

namespace moecl::test::oracle {
namespace {

double f32(double value) { return static_cast<float>(value); }

/// The local expert on its rank.
std::int32_t local_expert(const DistributeGroup& group, std::int32_t id, std::int32_t column) {
  if (column >= group.top_k) return 0;
  return id % (group.experts / (group.size() - group.shared_ranks));
}

}  // namespace

std::int32_t destination(const DistributeGroup& group, std::int32_t source, std::int64_t token, std::int32_t column) {
  const DistributeRank& from = group.ranks[static_cast<std::size_t>(source)];
  if (column >= group.top_k) {
    if (!from.active[static_cast<std::size_t>(token)]) return -1;
    const std::int32_t each = group.shared_ranks / group.shared;
    return source % each + (column - group.top_k) * each;
  }
  const auto pair = static_cast<std::size_t>(token * group.top_k + column);
  if (!from.pair_active[pair] || from.ids[pair] >= group.experts) return -1;
  return group.shared_ranks + from.ids[pair] / (group.experts / (group.size() - group.shared_ranks));
}

std::vector<DistributedRow> dispatched_rows(const DistributeGroup& group, std::int32_t rank) {
  std::vector<DistributedRow> rows;
  for (std::int32_t expert = 0; expert < group.local_experts(rank); ++expert)
    for (std::int32_t source = 0; source < group.size(); ++source) {
      const DistributeRank& from = group.ranks[static_cast<std::size_t>(source)];
      for (std::int64_t token = 0; token < from.tokens; ++token)
        for (std::int32_t column = 0; column < group.top_k + group.shared; ++column) {
          if (destination(group, source, token, column) != rank) continue;
          const std::int32_t id =
              column < group.top_k ? from.ids[static_cast<std::size_t>(token * group.top_k + column)] : 0;
          if (local_expert(group, id, column) == expert) rows.push_back({expert, source, column, token});
        }
    }
  return rows;
}

std::vector<double> combined(const std::vector<CombineTerm>& terms, const std::vector<double>& last,
                             std::int64_t hidden) {
  std::vector<double> sum(static_cast<std::size_t>(hidden));
  for (std::size_t h = 0; h < sum.size(); ++h) {
    for (const CombineTerm& term : terms) sum[h] = f32(sum[h] + f32(term.weight * term.row[h]));
    if (!last.empty()) sum[h] = f32(sum[h] + last[h]);
  }
  return sum;
}

}  // namespace moecl::test::oracle
