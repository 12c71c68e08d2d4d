#include <moecl/placement_plan.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Fills in the places of each expert. Visits places in order, so an expert's list ascends.
void invert(PlacementPlan& plan, std::int32_t experts) {
  plan.replicas.assign(static_cast<std::size_t>(experts), 0);
  for (const std::int32_t expert : plan.logical_of)
    if (expert >= 0) ++plan.replicas[static_cast<std::size_t>(expert)];
  plan.most_replicas = std::max(*std::max_element(plan.replicas.begin(), plan.replicas.end()), 1);
  const auto width = static_cast<std::size_t>(plan.most_replicas);
  plan.physical_of.assign(plan.replicas.size() * width, -1);
  std::vector<std::size_t> filled(plan.replicas.size());
  for (std::size_t place = 0; place < plan.logical_of.size(); ++place) {
    if (plan.logical_of[place] < 0) continue;
    const auto expert = static_cast<std::size_t>(plan.logical_of[place]);
    plan.physical_of[expert * width + filled[expert]++] = static_cast<std::int32_t>(place);
  }
}

constexpr const char* not_divided = "the experts are not divided among ranks";

/// Why round robin is not possible; empty if it is.
std::string refuse_round_robin(const PlaceExperts& problem) {
  if (problem.ranks == 1) return not_divided;
  if (problem.redundant > 0) return "redundant experts follow the others in linear order";
  if (problem.expert_groups <= 1) return "the router has no expert groups to spread";
  return {};
}

}  // namespace

bool PlacementPlan::is_identity() const {
  for (std::size_t place = 0; place < logical_of.size(); ++place)
    if (logical_of[place] != static_cast<std::int32_t>(place)) return false;
  return physical() == logical();
}

void PlacementPlan::check() const {
  PlacementPlan by_place;
  by_place.logical_of = logical_of;
  for (std::size_t place = 0; place < logical_of.size(); ++place)
    require(logical_of[place] >= (may_lack ? -1 : 0) && logical_of[place] < logical(),
            "placement: place {} holds expert {} of {}", place, logical_of[place], logical());
  require(!replicas.empty(), "placement: no experts");
  invert(by_place, logical());
  const auto homeless = std::find(by_place.replicas.begin(), by_place.replicas.end(), 0);
  require(may_lack || homeless == by_place.replicas.end(), "placement: expert {} has no place",
          homeless - by_place.replicas.begin());
  require(replicas == by_place.replicas && most_replicas == by_place.most_replicas,
          "placement: replicas or most_replicas {} do not count the places of logical_of, at most {} of an expert",
          most_replicas, by_place.most_replicas);
  require(physical_of.size() == by_place.physical_of.size(), "placement: physical_of has {} entries, expected [{}, {}]",
          physical_of.size(), logical(), most_replicas);
  require(physical_of == by_place.physical_of, "placement: physical_of is not where logical_of puts the experts");
}

PlacementPlan place_experts(const PlaceExperts& problem) {
  require(problem.experts >= 1 && problem.ranks >= 1 && problem.expert_groups >= 1 && problem.redundant >= 0,
          "place_experts: {} experts in {} groups, {} redundant, {} ranks", problem.experts, problem.expert_groups,
          problem.redundant, problem.ranks);
  const std::int64_t places = std::int64_t{problem.experts} + problem.redundant;
  require(problem.redundant == 0 || places % problem.ranks == 0,
          "redundant experts: {} and {} of them do not have equal shares of {} ranks", problem.experts,
          problem.redundant, problem.ranks);
  PlacementPlan plan;
  plan.reason = problem.ranks == 1       ? not_divided
                : problem.redundant == 0 ? "consecutive experts on each rank"
                                         : "consecutive experts on each rank, then copies from the first one on";
  if (problem.wanted == ExpertPlacement::round_robin) {
    const std::string refusal = refuse_round_robin(problem);
    if (refusal.empty()) {
      plan.placement = ExpertPlacement::round_robin;
      plan.reason = fmt::format("spreads the router's {} expert groups over the ranks", problem.expert_groups);
    } else {
      plan.reason = "instead of round_robin: " + refusal;
    }
  }
  for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
    const ExpertMap map = ExpertMap::make(problem.experts, problem.ranks, rank, plan.placement);
    plan.logical_of.insert(plan.logical_of.end(), map.global_of.begin(), map.global_of.end());
  }
  for (std::int32_t copy = 0; copy < problem.redundant; ++copy) plan.logical_of.push_back(copy % problem.experts);
  invert(plan, problem.experts);
  return plan;
}

namespace {

PlacementPlan place_given(std::vector<std::int32_t> logical_of, std::int32_t experts, bool may_lack) {
  require(experts >= 1, "placement: {} experts", experts);
  PlacementPlan plan;
  plan.reason = "as the caller placed them";
  plan.may_lack = may_lack;
  plan.logical_of = std::move(logical_of);
  for (std::size_t place = 0; place < plan.logical_of.size(); ++place)
    require(plan.logical_of[place] >= (may_lack ? -1 : 0) && plan.logical_of[place] < experts,
            "placement: place {} holds expert {} of {}", place, plan.logical_of[place], experts);
  invert(plan, experts);
  plan.check();
  return plan;
}

}  // namespace

PlacementPlan place_as_given(std::vector<std::int32_t> logical_of, std::int32_t experts) {
  return place_given(std::move(logical_of), experts, false);
}

PlacementPlan place_what_is_left(std::vector<std::int32_t> logical_of, std::int32_t experts) {
  return place_given(std::move(logical_of), experts, true);
}

std::vector<std::int32_t> shares_by_rates(std::int32_t experts, const std::vector<double>& rates) {
  require(experts >= 1, "shares: {} experts", experts);
  double all = 0;
  for (const double rate : rates) {
    require(std::isfinite(rate) && rate >= 0, "shares: a rank's rate is {}", rate);
    all += rate;
  }
  require(all > 0, "shares: no rank has a rate");
  std::vector<std::int32_t> shares;
  std::vector<std::pair<double, std::size_t>> left;  // minus what rounding down took: the largest loss sorts first
  std::int32_t given = 0;
  for (std::size_t r = 0; r < rates.size(); ++r) {
    const double exact = experts * (rates[r] / all);
    shares.push_back(static_cast<std::int32_t>(exact));
    left.emplace_back(shares.back() - exact, r);
    given += shares.back();
  }
  std::sort(left.begin(), left.end());
  for (std::size_t i = 0; given < experts; i = (i + 1) % left.size(), ++given) ++shares[left[i].second];
  return shares;
}

PlacementPlan place_in_shares(const std::vector<std::int32_t>& shares) {
  std::int32_t most = 0, expert = 0;
  for (const std::int32_t share : shares) {
    require(share >= 0, "placement: a rank has {} experts", share);
    most = std::max(most, share);
  }
  std::vector<std::int32_t> table;
  for (const std::int32_t share : shares)
    for (std::int32_t i = 0; i < most; ++i) table.push_back(i < share ? expert++ : -1);
  PlacementPlan plan = place_what_is_left(std::move(table), expert);
  plan.reason = fmt::format("shares of {} experts", fmt::join(shares, ", "));
  return plan;
}

std::vector<std::int32_t> PlacementPlan::gone() const {
  std::vector<std::int32_t> experts;
  for (std::int32_t expert = 0; expert < logical(); ++expert)
    if (replicas[static_cast<std::size_t>(expert)] == 0) experts.push_back(expert);
  return experts;
}

PlacementPlan without_ranks(const PlacementPlan& plan, std::int32_t ranks, const std::vector<std::int32_t>& lost) {
  require(ranks >= 1 && plan.physical() % ranks == 0, "placement: {} ranks do not divide {} places", ranks,
          plan.physical());
  for (const std::int32_t rank : lost)
    require(rank >= 0 && rank < ranks, "placement: rank {} of {} is lost", rank, ranks);
  const std::int32_t each = plan.physical() / ranks;
  std::vector<std::int32_t> left;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    if (std::find(lost.begin(), lost.end(), rank) == lost.end())
      left.insert(left.end(), plan.logical_of.begin() + rank * each, plan.logical_of.begin() + (rank + 1) * each);
  return place_what_is_left(std::move(left), plan.logical());
}

ExpertPlacement placement_from_name(std::string_view text) {
  for (const ExpertPlacement placement : {ExpertPlacement::linear, ExpertPlacement::round_robin})
    if (text == name(placement)) return placement;
  fail(ErrorCode::invalid_argument, "placement: '{}' is none of linear, round_robin", text);
}

}  // namespace moecl
