#include "dispatch/placement/balance.hpp"

#include <moecl/balance.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr BalancePolicy policies[] = {BalancePolicy::deepseek,       BalancePolicy::vllm,
                                      BalancePolicy::ascend_default, BalancePolicy::ascend_swift,
                                      BalancePolicy::flashlb,        BalancePolicy::moecl};

bool goes_by_places(BalancePolicy policy) {
  return policy == BalancePolicy::ascend_default || policy == BalancePolicy::ascend_swift ||
         policy == BalancePolicy::flashlb;
}

void expect_counts(const BalanceProblem& of) {
  require(of.layers >= 1 && of.experts >= 1 && of.places >= 1 && of.ranks >= 1 && of.stages >= 1 &&
              of.expert_groups >= 1 && of.nodes >= 1,
          "balance: expected positive numbers, got {} layers, {} experts in {} groups, {} places, {} ranks, {} nodes, "
          "{} stages",
          of.layers, of.experts, of.expert_groups, of.places, of.ranks, of.nodes, of.stages);
  require(of.places % of.ranks == 0, "balance: {} ranks do not divide {} places", of.ranks, of.places);
  require(of.places >= of.experts, "balance: expected at least {} places, one an expert, got {}", of.experts,
          of.places);
}

void expect_loads(const std::vector<double>& loads, std::size_t size, const char* what, const char* shape) {
  require(loads.size() == size, "balance: {}: expected {} numbers, {}, got {}", what, size, shape, loads.size());
  const auto bad =
      std::find_if(loads.begin(), loads.end(), [](double load) { return !(load >= 0 && load < HUGE_VAL); });
  require(bad == loads.end(), "balance: {}: expected finite numbers that are not negative, got {} at {}", what,
          bad == loads.end() ? 0 : *bad, bad - loads.begin());
}

void expect_table(const BalanceProblem& of) {
  const auto places = static_cast<std::size_t>(of.places);
  require(of.current.size() == static_cast<std::size_t>(of.layers) * places,
          "balance: current: expected {} experts, [L, P], got {}", static_cast<std::size_t>(of.layers) * places,
          of.current.size());
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(of.layers); ++layer) {
    std::vector<bool> placed(static_cast<std::size_t>(of.experts));
    for (std::size_t place = 0; place < places; ++place) {
      const std::int32_t expert = of.current[layer * places + place];
      require(expert != -1,
              "balance: current: place {} of layer {} is free: ranks of unequal shares have no equal loads", place,
              layer);
      require(expert >= 0 && expert < of.experts, "balance: current: place {} of layer {} holds expert {} of {}", place,
              layer, expert, of.experts);
      placed[static_cast<std::size_t>(expert)] = true;
    }
    const auto lost = std::find(placed.begin(), placed.end(), false);
    require(lost == placed.end(), "balance: current: expert {} has no place in layer {}", lost - placed.begin(), layer);
  }
}

void expect_problem(BalancePolicy policy, const BalanceProblem& of) {
  expect_counts(of);
  const auto layers = static_cast<std::size_t>(of.layers);
  if (goes_by_places(policy)) {
    expect_table(of);
    require(policy == BalancePolicy::flashlb || of.stages == 1, "balance: {} takes one stage, got {}", name(policy),
            of.stages);
    expect_loads(of.place_loads, static_cast<std::size_t>(of.stages) * layers * static_cast<std::size_t>(of.places),
                 "place_loads", "[T, L, P]");
  } else {
    expect_loads(of.loads, layers * static_cast<std::size_t>(of.experts), "loads", "[L, E]");
    if (!of.current.empty()) expect_table(of);
  }
  if (policy == BalancePolicy::deepseek || policy == BalancePolicy::vllm) {
    const bool hierarchical = of.expert_groups % of.nodes == 0;
    require(!hierarchical || of.experts % of.expert_groups == 0, "balance: {} groups do not divide {} experts",
            of.expert_groups, of.experts);
    require(!hierarchical || of.ranks % of.nodes == 0, "balance: {} nodes do not divide {} ranks", of.nodes, of.ranks);
  }
  if (policy == BalancePolicy::ascend_default)
    require(of.places - of.experts <= of.ranks,
            "balance: ascend_default: expected at most {} copies, one a rank, got {}", of.ranks,
            of.places - of.experts);
  if (policy == BalancePolicy::ascend_swift)
    require(of.ranks_per_node >= 0 && (of.ranks_per_node == 0 || of.ranks % of.ranks_per_node == 0),
            "balance: nodes of {} ranks do not divide {} ranks", of.ranks_per_node, of.ranks);
  if (policy == BalancePolicy::flashlb)
    require(of.world_size >= 0 && of.depth >= 1 && of.width >= 0 && of.sample_size >= 1 && of.z_score >= 0,
            "balance: flashlb: world_size {}, depth {}, width {}, sample_size {}, z_score {}", of.world_size, of.depth,
            of.width, of.sample_size, of.z_score);
}

/// Load of each logical expert: as given, or summed over its places and stages. Shape: [L, E]
std::vector<double> logical_loads(BalancePolicy policy, const BalanceProblem& of) {
  if (!goes_by_places(policy)) {
    std::vector<double> loads = of.loads;
    if (policy != BalancePolicy::moecl)
      for (double& load : loads) load = static_cast<float>(load);
    return loads;
  }
  const std::size_t layers = static_cast<std::size_t>(of.layers), places = static_cast<std::size_t>(of.places);
  std::vector<double> loads(layers * static_cast<std::size_t>(of.experts));
  for (std::size_t i = 0; i < of.place_loads.size(); ++i) {
    const std::size_t at = i % (layers * places);
    loads[at / places * static_cast<std::size_t>(of.experts) + static_cast<std::size_t>(of.current[at])] +=
        of.place_loads[i];
  }
  return loads;
}

/// Load of the fullest rank, summed over layers. The places of an expert share its load equally.
double load_of(const BalanceProblem& of, const std::vector<std::int32_t>& logical_of,
               const std::vector<double>& loads) {
  const auto experts = static_cast<std::size_t>(of.experts), places = static_cast<std::size_t>(of.places);
  double sum = 0;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(of.layers); ++layer) {
    const std::int32_t* const row = logical_of.data() + layer * places;
    std::vector<std::int32_t> copies(experts);
    for (std::size_t place = 0; place < places; ++place) ++copies[static_cast<std::size_t>(row[place])];
    double fullest = 0;
    for (std::size_t first = 0; first < places; first += places / static_cast<std::size_t>(of.ranks)) {
      double rank = 0;
      for (std::size_t place = first; place < first + places / static_cast<std::size_t>(of.ranks); ++place) {
        const auto e = static_cast<std::size_t>(row[place]);
        rank += loads[layer * experts + e] / copies[e];
      }
      fullest = std::max(fullest, rank);
    }
    sum += fullest;
  }
  return sum;
}

std::int64_t moves_between(const BalanceProblem& of, const std::vector<std::int32_t>& old,
                           const std::vector<std::int32_t>& fresh) {
  const auto of_rank = static_cast<std::ptrdiff_t>(of.places / of.ranks);
  std::int64_t moves = 0;
  for (std::ptrdiff_t first = 0; first < static_cast<std::ptrdiff_t>(fresh.size()); first += of_rank)
    for (std::ptrdiff_t place = first; place < first + of_rank; ++place) {
      const auto held = old.begin() + first, seen = fresh.begin() + first;
      const std::int32_t expert = fresh[static_cast<std::size_t>(place)];
      if (std::find(held, held + of_rank, expert) == held + of_rank &&
          std::find(seen, fresh.begin() + place, expert) == fresh.begin() + place)
        ++moves;
    }
  return moves;
}

/// Lists each expert's places in the order of its copies; without `copy_of` in the order of places.
void list_places(Balanced& result, const BalanceProblem& of, const std::vector<std::int32_t>& copy_of) {
  const auto experts = static_cast<std::size_t>(of.experts), places = static_cast<std::size_t>(of.places);
  result.replicas.assign(static_cast<std::size_t>(of.layers) * experts, 0);
  result.places_of.resize(result.logical_of.size());
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(of.layers); ++layer) {
    const std::int32_t* const row = result.logical_of.data() + layer * places;
    std::int32_t* const replicas = result.replicas.data() + layer * experts;
    for (std::size_t place = 0; place < places; ++place) ++replicas[row[place]];
    std::vector<std::int32_t> begin(experts), seen(experts);
    std::partial_sum(replicas, replicas + experts - 1, begin.begin() + 1);
    for (std::size_t place = 0; place < places; ++place) {
      const auto expert = static_cast<std::size_t>(row[place]);
      const std::int32_t copy = copy_of.empty() ? seen[expert]++ : copy_of[layer * places + place];
      result.places_of[layer * places + static_cast<std::size_t>(begin[expert] + copy)] =
          static_cast<std::int32_t>(place);
    }
  }
}

}  // namespace

const char* name(BalancePolicy policy) noexcept {
  constexpr const char* names[] = {"deepseek", "vllm", "ascend_default", "ascend_swift", "flashlb", "moecl"};
  return names[static_cast<std::size_t>(policy)];
}

BalancePolicy balance_policy_from_name(std::string_view text) {
  for (const BalancePolicy policy : policies)
    if (text == name(policy)) return policy;
  fail(ErrorCode::invalid_argument,
       "policy: expected deepseek, vllm, ascend_default, ascend_swift, flashlb or moecl, got '{}'", text);
}

Balanced balance(BalancePolicy policy, const BalanceProblem& problem, BalanceHistory* history) {
  expect_problem(policy, problem);
  Balanced result;
  balancers::Tables tables;
  BalanceHistory first;
  switch (policy) {
    case BalancePolicy::deepseek:
      tables = balancers::deepseek(problem);
      break;
    case BalancePolicy::vllm:
      tables = balancers::vllm(problem);
      break;
    case BalancePolicy::ascend_default:
      tables = balancers::ascend_default(problem);
      break;
    case BalancePolicy::ascend_swift:
      tables = balancers::ascend_swift(problem);
      break;
    case BalancePolicy::flashlb:
      tables = balancers::flashlb(problem, (history != nullptr ? *history : first).state(), result.layer_priority);
      result.changed = !result.layer_priority.empty();
      break;
    case BalancePolicy::moecl:
      tables = balancers::moecl(problem);
      break;
  }
  if (policy == BalancePolicy::ascend_default || policy == BalancePolicy::ascend_swift) {
    const auto ratio = [&](std::int32_t l) {
      const auto layer = static_cast<std::size_t>(l);
      return tables.before[layer] == tables.after[layer] ? 1 : tables.after[layer] / tables.before[layer];
    };
    result.layer_priority = balancers::rising(tables.after.size(), ratio);
    constexpr double worth_it = 0.95;
    result.changed = std::accumulate(tables.after.begin(), tables.after.end(), 0.0) <
                     worth_it * std::accumulate(tables.before.begin(), tables.before.end(), 0.0);
  }
  const std::vector<double> loads = logical_loads(policy, problem);
  result.logical_of = std::move(tables.logical_of);
  list_places(result, problem, tables.copy_of);
  result.load = load_of(problem, result.logical_of, loads);
  result.mean_load = std::accumulate(loads.begin(), loads.end(), 0.0) / problem.ranks;
  std::vector<std::int32_t> old = problem.current;
  if (old.empty()) {
    old.resize(result.logical_of.size());
    for (std::size_t at = 0; at < old.size(); ++at)
      old[at] = static_cast<std::int32_t>(at) % problem.places % problem.experts;
  } else {
    result.load_before = load_of(problem, old, loads);
  }
  result.moves = moves_between(problem, old, result.logical_of);
  return result;
}

}  // namespace moecl
