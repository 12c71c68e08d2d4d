#include <moecl/placement_plan.hpp>

#include <algorithm>
#include <numeric>

#include "runtime/check.hpp"

namespace moecl {
namespace {

std::vector<std::vector<std::int32_t>> places_by_expert(const PlacementPlan& plan) {
  std::vector<std::vector<std::int32_t>> lists(plan.replicas.size());
  for (std::int32_t place = 0; place < plan.physical(); ++place)
    if (const std::int32_t expert = plan.logical_of[static_cast<std::size_t>(place)]; expert >= 0)
      lists[static_cast<std::size_t>(expert)].push_back(place);
  return lists;
}

/// Each expert with several places splits its load into sixteen parts. One part after the other goes to the place on
/// the least loaded rank. Experts with more load come first.
void share_by_need(std::vector<std::vector<std::int32_t>>& lists, const std::vector<double>& loads, std::int32_t ranks,
                   std::int32_t places) {
  constexpr int parts = 16;
  require(loads.size() == lists.size(), "replicas by need: loads of {} experts, the plan has {}", loads.size(),
          lists.size());
  for (const double load : loads) require(load >= 0, "replicas by need: a load of {}", load);
  const std::int32_t each = places / ranks;
  std::vector<double> of_rank(static_cast<std::size_t>(ranks));
  std::vector<std::size_t> several;
  for (std::size_t e = 0; e < lists.size(); ++e) {
    if (lists[e].size() == 1) of_rank[static_cast<std::size_t>(lists[e].front() / each)] += loads[e];
    if (lists[e].size() > 1) several.push_back(e);
  }
  std::stable_sort(several.begin(), several.end(), [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
  for (const std::size_t e : several) {
    std::vector<std::int32_t> chosen;
    for (int i = 0; i < parts; ++i) {
      const auto load_at = [&](std::int32_t place) -> double& {
        return of_rank[static_cast<std::size_t>(place / each)];
      };
      const std::int32_t best = *std::min_element(
          lists[e].begin(), lists[e].end(), [&](std::int32_t a, std::int32_t b) { return load_at(a) < load_at(b); });
      load_at(best) += loads[e] / parts;
      chosen.push_back(best);
    }
    lists[e] = std::move(chosen);
  }
}

}  // namespace

ReplicaTable replica_table(const PlacementPlan& plan, ReplicaChoice choice, std::int32_t rank, std::int32_t ranks,
                           const std::vector<double>& loads) {
  std::vector<std::vector<std::int32_t>> lists = places_by_expert(plan);
  if (choice != ReplicaChoice::token_hash) {
    require(ranks >= 1 && rank >= 0 && rank < ranks && plan.physical() % ranks == 0,
            "replicas: rank {} of {}, which share {} places", rank, ranks, plan.physical());
    if (choice == ReplicaChoice::by_need) share_by_need(lists, loads, ranks, plan.physical());
  }
  if (choice == ReplicaChoice::per_rank)
    for (std::vector<std::int32_t>& list : lists) {
      if (list.empty()) continue;
      const std::int32_t each = plan.physical() / ranks;
      const auto own = std::find_if(list.begin(), list.end(), [&](std::int32_t place) { return place / each == rank; });
      list = {own != list.end() ? *own : list[static_cast<std::size_t>(rank) % list.size()]};
    }
  ReplicaTable table;
  for (const auto& list : lists) table.choices = std::max(table.choices, static_cast<std::int32_t>(list.size()));
  for (auto& list : lists) {
    table.counts.push_back(static_cast<std::int32_t>(list.size()));
    list.resize(static_cast<std::size_t>(table.choices), -1);
    table.places.insert(table.places.end(), list.begin(), list.end());
  }
  return table;
}

}  // namespace moecl
