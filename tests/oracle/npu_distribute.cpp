#include "tests/oracle/npu_distribute.hpp"

#include <algorithm>

namespace moecl::test::oracle {
namespace {

double f32(double value) { return static_cast<float>(value); }

/// The expert's index on its rank.
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

namespace {

/// Pairs of `source` that go to one of the ranks [first, end).
std::int64_t pairs_to(const DistributeGroup& group, std::int32_t source, std::int32_t first, std::int32_t end) {
  std::int64_t pairs = 0;
  for (std::int64_t token = 0; token < group.ranks[static_cast<std::size_t>(source)].tokens; ++token)
    for (std::int32_t column = 0; column < group.top_k + group.shared; ++column) {
      const std::int32_t to = destination(group, source, token, column);
      pairs += to >= first && to < end ? 1 : 0;
    }
  return pairs;
}
/// Tokens that have such a pair.
std::int64_t tokens_to(const DistributeGroup& group, std::int32_t source, std::int32_t first, std::int32_t end) {
  std::int64_t tokens = 0;
  for (std::int64_t token = 0; token < group.ranks[static_cast<std::size_t>(source)].tokens; ++token) {
    bool reaches = false;
    for (std::int32_t column = 0; column < group.top_k; ++column) {
      const std::int32_t to = destination(group, source, token, column);
      reaches = reaches || (to >= first && to < end);
    }
    tokens += reaches ? 1 : 0;
  }
  return tokens;
}

}  // namespace

std::int64_t dispatch_bytes(const DistributeGroup& group, std::int32_t rank, const DistributeBytes& of) {
  const std::int32_t ranks = group.size();
  if (of.per_server == 0) {
    std::int64_t rows = 0;
    for (std::int32_t source = 0; source < ranks; ++source)
      if (source != rank) rows += pairs_to(group, source, rank, rank + 1);
    return (ranks - 1) * 4 * (group.shared_ranks + group.experts) +
           rows * (of.row + (of.weights ? 4 : 0) + (of.sources ? 4 : 0));
  }
  const std::int32_t each = of.per_server, servers = ranks / each, first = rank / each * each;
  const auto units = [&](std::int32_t source, std::int32_t begin, std::int32_t end) {
    return of.row_for_each_pair ? pairs_to(group, source, begin, end) : tokens_to(group, source, begin, end);
  };
  std::int64_t hops = 0;
  for (std::int32_t server = 0; server < servers; ++server) {
    const std::int32_t alike = server * each + rank % each;
    if (alike != rank) hops += units(alike, first, first + each);
    for (std::int32_t i = 0; i < each; ++i)
      if (first + i != rank) hops += units(server * each + i, rank, rank + 1);
  }
  const std::int64_t columns = of.row_for_each_pair ? 1 : group.top_k;
  return (ranks - 1) * 4 * (group.experts + servers + ranks) + hops * (of.row + 8 * columns + 4);
}

std::int64_t combine_bytes(const DistributeGroup& group, std::int32_t rank, const DistributeBytes& of) {
  const std::int32_t ranks = group.size();
  std::int64_t bytes = 0;
  for (std::int32_t other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    const std::int64_t rows = pairs_to(group, rank, other, other + 1);
    if (of.per_server == 0) bytes += rows * of.row;
    if (of.sources) bytes += 4 * std::min(rows + 1, of.capacity);
  }
  if (of.per_server == 0) return bytes;
  const std::int32_t each = of.per_server, first = rank / each * each;
  bytes += (each - 1) * 4 * ranks;
  for (std::int32_t alike = rank % each; alike < ranks; alike += each) {
    for (std::int32_t other = first; other < first + each; ++other)
      if (other != rank) bytes += pairs_to(group, alike, other, other + 1) * (of.row + 8);
    if (alike != rank) bytes += tokens_to(group, rank, alike / each * each, alike / each * each + each) * of.partial;
  }
  return bytes;
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
