// FlashLB of vllm-ascend: experts are placed by the mean and the risk of their loads over stages.
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "dispatch/placement/balance.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

struct BalanceHistory::State {
  std::vector<std::deque<std::vector<double>>> loads;  ///< of each layer: loads of experts in each stage, oldest first
  std::vector<std::optional<float>> applied;           ///< of each layer: mean/max of its last table
};

BalanceHistory::BalanceHistory() : state_(std::make_unique<State>()) {}
BalanceHistory::~BalanceHistory() = default;
BalanceHistory::BalanceHistory(BalanceHistory&&) noexcept = default;
BalanceHistory& BalanceHistory::operator=(BalanceHistory&&) noexcept = default;

namespace balancers {
namespace {

using Row = std::vector<std::int32_t>;
using Stages = std::vector<std::vector<double>>;

/// Mean over stages of the fullest rank's load divided by the mean load of a rank.
double imbalance(const std::vector<Row>& rows, const Row& copies, const Stages& stages) {
  constexpr double small = 0.01;
  double sum = 0;
  for (const std::vector<double>& load : stages) {
    double fullest = 0, total = 0;
    for (const Row& row : rows) {
      double rank = 0;
      for (const std::int32_t e : row) rank += load[static_cast<std::size_t>(e)] / copies[static_cast<std::size_t>(e)];
      fullest = std::max(fullest, rank);
      total += rank;
    }
    sum += (fullest * static_cast<double>(rows.size()) + small) / (total + small);
  }
  return sum / static_cast<double>(stages.size());
}

Row copies_in(const std::vector<Row>& rows, std::size_t experts) {
  Row copies(experts);
  for (const Row& row : rows)
    for (const std::int32_t e : row) ++copies[static_cast<std::size_t>(e)];
  return copies;
}

/// Statistics of the experts' loads over stages.
struct Statistics {
  std::vector<double> mean, risk;
  std::vector<std::vector<double>> covariance;

  Statistics(const Stages& stages, double z_score) {
    const std::size_t experts = stages.front().size();
    const auto count = static_cast<double>(stages.size());
    mean.assign(experts, 0);
    for (const auto& load : stages)
      for (std::size_t e = 0; e < experts; ++e) mean[e] += load[e] / count;
    covariance.assign(experts, std::vector<double>(experts));
    if (stages.size() > 1)
      for (const auto& load : stages)
        for (std::size_t a = 0; a < experts; ++a)
          for (std::size_t b = 0; b < experts; ++b)
            covariance[a][b] += (load[a] - mean[a]) * (load[b] - mean[b]) / (count - 1);
    for (std::size_t e = 0; e < experts; ++e)
      risk.push_back(mean[e] + z_score * std::sqrt(std::max(covariance[e][e], 0.0)));
  }
};

class Search {
 public:
  Search(const BalanceProblem& problem, const Stages& stages, const Stages& blocks)
      : problem_(problem), stages_(stages), of_(blocks, problem.z_score) {}

  std::vector<Row> best_rows() {
    const auto experts = static_cast<std::int32_t>(of_.mean.size());
    const Row order = falling(of_.risk.size(), [&](std::int32_t e) { return of_.risk[static_cast<std::size_t>(e)]; });
    const std::int32_t of_block = quotient_up(experts, problem_.depth);
    Row copies(of_.mean.size(), 1);
    std::int32_t places = problem_.places;
    for (std::int32_t begin = 0; begin < experts; begin += of_block) {
      const Row block(order.begin() + begin, order.begin() + std::min(begin + of_block, experts));
      const Row rest(order.begin() + begin + static_cast<std::int32_t>(block.size()), order.end());
      if (rest.empty()) {
        replicate(copies, block, places);
        break;
      }
      const std::int32_t given = search(copies, block, rest, places);
      replicate(copies, block, given);
      places -= given;
    }
    return place(copies);
  }

 private:
  /// Distributes `places` places over these experts: one each, then one at a time to the expert with most risk a copy.
  void replicate(Row& copies, const Row& experts, std::int32_t places) const {
    for (const std::int32_t e : experts) copies[static_cast<std::size_t>(e)] = 1;
    for (auto count = static_cast<std::int32_t>(experts.size()); count < places; ++count) {
      std::int32_t most = -1;
      double share = 0;
      for (const std::int32_t e : experts) {
        const double of = of_.risk[static_cast<std::size_t>(e)] / copies[static_cast<std::size_t>(e)];
        if (most < 0 || of > share) most = e, share = of;
      }
      ++copies[static_cast<std::size_t>(most)];
    }
  }

  /// The number of places for the block that gives the least imbalance, near the greedy number.
  std::int32_t search(const Row& copies, const Row& block, const Row& rest, std::int32_t places) const {
    Row both = block, greedy = copies;
    both.insert(both.end(), rest.begin(), rest.end());
    replicate(greedy, both, places);
    std::int32_t middle = 0;
    for (const std::int32_t e : block) middle += greedy[static_cast<std::size_t>(e)];
    const auto least = static_cast<std::int32_t>(block.size()), most = places - static_cast<std::int32_t>(rest.size());
    std::int32_t best = middle;
    double score = std::numeric_limits<double>::infinity();
    const auto attempt = [&](std::int32_t given) {
      if (given < least || given > most) return;
      Row trial = copies;
      replicate(trial, block, given);
      replicate(trial, rest, places - given);
      const double found = imbalance(place(trial), trial, stages_);
      if (found < score) best = given, score = found;
    };
    for (std::int32_t given = middle - problem_.width; given <= middle + problem_.width; ++given) attempt(given);
    return best;
  }

  /// The experts of a rank, with mean and variance of its load.
  struct Rank {
    Row experts;
    double mean = 0, variance = 0;
  };

  /// Places experts by falling mean load of a copy. Each copy goes to the rank that then has the least risk, among the
  /// ranks with room that do not hold the expert.
  std::vector<Row> place(const Row& copies) const {
    std::vector<Rank> ranks(static_cast<std::size_t>(problem_.ranks));
    const std::size_t of_rank = static_cast<std::size_t>(problem_.places) / ranks.size();
    const auto share = [&](std::int32_t e) {
      return of_.mean[static_cast<std::size_t>(e)] / copies[static_cast<std::size_t>(e)];
    };
    for (const std::int32_t expert : falling(copies.size(), share))
      for (std::int32_t copy = 0; copy < copies[static_cast<std::size_t>(expert)]; ++copy) {
        Rank* best = nullptr;
        double best_risk = 0;
        for (Rank& rank : ranks) {
          if (rank.experts.size() == of_rank || holds(rank.experts, expert)) continue;
          const double risk = rank.mean + share(expert) +
                              problem_.z_score * std::sqrt(std::max(variance_with(rank, expert, copies), 0.0));
          if (best == nullptr || risk < best_risk) best = &rank, best_risk = risk;
        }
        if (best == nullptr)
          best =
              &*std::find_if(ranks.rbegin(), ranks.rend(), [&](const Rank& r) { return r.experts.size() < of_rank; });
        best->variance = variance_with(*best, expert, copies);
        best->mean += share(expert);
        best->experts.push_back(expert);
      }
    std::vector<Row> rows;
    for (Rank& rank : ranks) rows.push_back(std::move(rank.experts));
    return rows;
  }

  /// Variance of the rank's load with one more copy, of `expert`.
  double variance_with(const Rank& rank, std::int32_t expert, const Row& copies) const {
    const auto e = static_cast<std::size_t>(expert);
    double sum = of_.covariance[e][e] / copies[e];
    for (const std::int32_t other : rank.experts)
      sum += 2 * of_.covariance[e][static_cast<std::size_t>(other)] / copies[static_cast<std::size_t>(other)];
    return rank.variance + sum / copies[e];
  }

  const BalanceProblem& problem_;
  const Stages& stages_;
  Statistics of_;
};

/// Assigns a row to each rank so that most experts stay: the Hungarian method. A cost is minus the experts that stay.
Row assign(const std::vector<std::vector<int>>& cost) {
  const std::size_t n = cost.size();
  std::vector<int> u(n + 1), v(n + 1);
  std::vector<std::size_t> row_of(n + 1), way(n + 1);
  for (std::size_t i = 1; i <= n; ++i) {
    row_of[0] = i;
    std::size_t column = 0;
    std::vector<int> least(n + 1, std::numeric_limits<int>::max());
    std::vector<bool> used(n + 1);
    do {
      used[column] = true;
      const std::size_t row = row_of[column];
      std::size_t next = 0;
      int delta = std::numeric_limits<int>::max();
      for (std::size_t j = 1; j <= n; ++j) {
        if (used[j]) continue;
        const int reduced = cost[row - 1][j - 1] - u[row] - v[j];
        if (reduced < least[j]) least[j] = reduced, way[j] = column;
        if (least[j] < delta) delta = least[j], next = j;
      }
      for (std::size_t j = 0; j <= n; ++j) {
        if (used[j])
          u[row_of[j]] += delta, v[j] -= delta;
        else
          least[j] -= delta;
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) row_of[column] = row_of[way[column]], column = way[column];
  }
  Row column_of(n);
  for (std::size_t j = 1; j <= n; ++j) column_of[row_of[j] - 1] = static_cast<std::int32_t>(j - 1);
  return column_of;
}

std::vector<Row> deal(const std::vector<Row>& old, const std::vector<Row>& fresh) {
  std::vector<std::vector<int>> cost(old.size(), std::vector<int>(fresh.size()));
  for (std::size_t rank = 0; rank < old.size(); ++rank)
    for (std::size_t row = 0; row < fresh.size(); ++row)
      for (const std::int32_t e : fresh[row])
        if (holds(old[rank], e)) --cost[rank][row];
  const Row row_of = assign(cost);
  std::vector<Row> rows(old.size());
  for (std::size_t rank = 0; rank < old.size(); ++rank) {
    rows[rank] = fresh[static_cast<std::size_t>(row_of[rank])];
    keep_places(old[rank].data(), rows[rank].data(), rows[rank].size());
  }
  return rows;
}

/// Sums stages into blocks of neighbours; keeps the newest stages if there are too many.
Stages in_blocks(const Stages& stages, std::int32_t sample_size) {
  const auto most = static_cast<std::size_t>(sample_size);
  const std::size_t of_block = std::max<std::size_t>(1, stages.size() / most);
  const std::size_t blocks = std::min(stages.size() / of_block, most);
  Stages sums(blocks, std::vector<double>(stages.front().size()));
  for (std::size_t i = 0; i < blocks * of_block; ++i) {
    const std::vector<double>& load = stages[stages.size() - blocks * of_block + i];
    for (std::size_t e = 0; e < load.size(); ++e) sums[i / of_block][e] += load[e];
  }
  return sums;
}

}  // namespace

Tables flashlb(const BalanceProblem& problem, BalanceHistory::State& history,
               std::vector<std::int32_t>& layer_priority) {
  const auto layers = static_cast<std::size_t>(problem.layers), places = static_cast<std::size_t>(problem.places);
  const auto experts = static_cast<std::size_t>(problem.experts);
  const auto of_rank = places / static_cast<std::size_t>(problem.ranks);
  const bool wide = (problem.world_size > 0 ? problem.world_size : problem.ranks) >= 32;
  const float least_of_last = wide ? 0.9F : 0.95F, least = wide ? 0.85F : 0.9F;
  history.loads.resize(layers);
  history.applied.resize(layers);
  Tables tables;
  std::vector<std::pair<float, std::int32_t>> gains;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::int32_t* const current = problem.current.data() + layer * places;
    std::deque<std::vector<double>>& window = history.loads[layer];
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(problem.stages); ++stage) {
      std::vector<double>& load = window.emplace_back(experts, 1.0);
      const double* const counted = problem.place_loads.data() + (stage * layers + layer) * places;
      for (std::size_t place = 0; place < places; ++place)
        load[static_cast<std::size_t>(current[place])] += counted[place];
    }
    while (window.size() > static_cast<std::size_t>(problem.stages)) window.pop_front();
    const Stages stages(window.begin(), window.end());
    std::vector<Row> rows;
    for (std::size_t at = 0; at < places; at += of_rank) rows.emplace_back(current + at, current + at + of_rank);
    const auto balance_of = [&](const std::vector<Row>& of) {
      return static_cast<float>(1 / imbalance(of, copies_in(of, experts), stages));
    };
    const float before = balance_of(rows);
    std::optional<float>& applied = history.applied[layer];
    if (!applied || before < least_of_last * *applied || before < least) {
      rows = deal(rows, Search(problem, stages, in_blocks(stages, problem.sample_size)).best_rows());
      const float after = balance_of(rows);
      if (after > before) {
        gains.emplace_back(after - before, static_cast<std::int32_t>(layer));
        applied = after;
      }
    }
    for (const Row& row : rows) tables.logical_of.insert(tables.logical_of.end(), row.begin(), row.end());
  }
  std::stable_sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& gain : gains) layer_priority.push_back(gain.second);
  return tables;
}

}  // namespace balancers
}  // namespace moecl
