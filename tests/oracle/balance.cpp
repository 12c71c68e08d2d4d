#include "tests/oracle/balance.hpp"

#include <algorithm>
#include <numeric>

namespace moecl::test::oracle {
namespace {

using Ids = std::vector<std::size_t>;

/// The items of each bin, in the order of placement: heaviest first, each into the lightest bin with room.
std::vector<Ids> packed(const std::vector<float>& weights, std::size_t bins) {
  std::vector<Ids> found(bins);
  std::vector<float> full(bins);
  Ids order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // With one item per bin, nothing is sorted.
  if (weights.size() > bins)
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  for (const std::size_t item : order) {
    std::size_t best = bins;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      if (weights.size() == bins ? bin != item : found[bin].size() == weights.size() / bins) continue;
      if (best == bins || full[bin] < full[best]) best = bin;
    }
    found[best].push_back(item);
    full[best] += weights[item];
  }
  return found;
}

/// The expert of each copy: all experts once, then one more copy at a time.
Ids replicated(const std::vector<float>& loads, std::size_t places) {
  Ids copies(loads.size());
  std::iota(copies.begin(), copies.end(), std::size_t{0});
  while (copies.size() < places) {
    std::size_t best = 0;
    float most = -1;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      const float share = loads[e] / static_cast<float>(std::count(copies.begin(), copies.end(), e));
      if (share > most) most = share, best = e;
    }
    copies.push_back(best);
  }
  return copies;
}

}  // namespace

std::vector<std::int32_t> deepseek_eplb(const BalanceProblem& problem) {
  const bool hierarchical = problem.expert_groups % problem.nodes == 0;
  const auto size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
  const std::size_t nodes = hierarchical ? size(problem.nodes) : 1,
                    groups = hierarchical ? size(problem.expert_groups) : 1;
  const std::size_t experts = size(problem.experts), each = experts / groups;
  std::vector<std::int32_t> table;
  for (std::size_t layer = 0; layer < size(problem.layers); ++layer) {
    const std::vector<float> loads(problem.loads.begin() + static_cast<std::ptrdiff_t>(layer * experts),
                                   problem.loads.begin() + static_cast<std::ptrdiff_t>((layer + 1) * experts));
    std::vector<float> of_groups(groups);
    for (std::size_t e = 0; e < experts; ++e) of_groups[e / each] += loads[e];
    for (const Ids& groups_here : packed(of_groups, nodes)) {
      Ids here;
      for (const std::size_t group : groups_here)
        for (std::size_t e = 0; e < each; ++e) here.push_back(group * each + e);
      std::vector<float> loads_here;
      for (const std::size_t e : here) loads_here.push_back(loads[e]);
      const Ids copies = replicated(loads_here, size(problem.places) / nodes);
      std::vector<float> shares;
      for (const std::size_t e : copies)
        shares.push_back(loads_here[e] / static_cast<float>(std::count(copies.begin(), copies.end(), e)));
      for (const Ids& rank : packed(shares, size(problem.ranks) / nodes))
        for (const std::size_t copy : rank) table.push_back(static_cast<std::int32_t>(here[copies[copy]]));
    }
  }
  return table;
}

}  // namespace moecl::test::oracle
