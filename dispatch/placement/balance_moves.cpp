// moecl's own policy: a local search for the table with the least load of the fullest rank plus a price for each moved
// expert.
#include <random>

#include "dispatch/placement/balance.hpp"

namespace moecl::balancers {
namespace {

/// The table of one layer, changed step by step. Loads are in units of the mean load of a rank.
class Table {
 public:
  Table(std::vector<double> loads, std::vector<std::int32_t> experts, std::int32_t ranks)
      : loads_(std::move(loads)),
        expert_(std::move(experts)),
        of_rank_(expert_.size() / static_cast<std::size_t>(ranks)),
        places_(loads_.size()),
        rank_(static_cast<std::size_t>(ranks)) {
    for (std::size_t place = 0; place < expert_.size(); ++place) places_of(expert_[place]).push_back(place);
    for (std::size_t place = 0; place < expert_.size(); ++place) rank_[place / of_rank_] += share(expert_[place]);
  }

  const std::vector<std::int32_t>& experts() const { return expert_; }
  double fullest() const { return *std::max_element(rank_.begin(), rank_.end()); }

  /// Takes the best step for the fullest rank: an exchange of two places, or another expert's copy at a place.
  /// @return  False: no step evens out the ranks
  bool improve() {
    const auto full = static_cast<std::size_t>(std::max_element(rank_.begin(), rank_.end()) - rank_.begin());
    Step best;
    for (std::size_t i = full * of_rank_; i < (full + 1) * of_rank_; ++i) {
      for (std::size_t j = 0; j < expert_.size(); ++j) {
        if (j / of_rank_ != full) consider(best, {i, j, -1}, gain_of_exchange(i, j));
        consider(best, {j, 0, expert_[i]}, gain_of_copy(j, expert_[i]));
      }
      for (std::int32_t e = 0; e < static_cast<std::int32_t>(loads_.size()); ++e)
        consider(best, {i, 0, e}, gain_of_copy(i, e));
    }
    if (best.gain <= least_gain) return false;
    if (best.copy >= 0)
      put(best.first, best.copy);
    else
      exchange(best.first, best.second);
    return true;
  }

  /// Takes a random step, good or bad.
  void disturb(std::mt19937& engine) {
    const std::size_t first = engine() % expert_.size(), second = engine() % expert_.size();
    const auto expert = static_cast<std::int32_t>(engine() % loads_.size());
    if (engine() % 2 == 0 && can_copy(first, expert))
      put(first, expert);
    else if (can_exchange(first, second))
      exchange(first, second);
  }

 private:
  static constexpr double least_gain = 1e-9;
  struct Step {
    std::size_t first = 0, second = 0;  ///< places to exchange; or `first` gets the copy
    std::int32_t copy = -1;             ///< the expert to copy; -1: an exchange
    double gain = 0;
  };

  std::vector<std::size_t>& places_of(std::int32_t e) { return places_[static_cast<std::size_t>(e)]; }
  const std::vector<std::size_t>& places_of(std::int32_t e) const { return places_[static_cast<std::size_t>(e)]; }
  double load(std::int32_t e) const { return loads_[static_cast<std::size_t>(e)]; }
  double share(std::int32_t e) const { return load(e) / static_cast<double>(places_of(e).size()); }
  bool rank_holds(std::size_t rank, std::int32_t e) const {
    const auto& places = places_of(e);
    return std::any_of(places.begin(), places.end(), [&](std::size_t place) { return place / of_rank_ == rank; });
  }
  bool can_copy(std::size_t place, std::int32_t e) const {
    return places_of(expert_[place]).size() > 1 && !rank_holds(place / of_rank_, e);
  }
  bool can_exchange(std::size_t i, std::size_t j) const {
    return i / of_rank_ != j / of_rank_ && !rank_holds(j / of_rank_, expert_[i]) &&
           !rank_holds(i / of_rank_, expert_[j]);
  }

  /// Cost of a rank's load: load^16, so that the fullest ranks dominate.
  static double cost(double load) {
    double power = load;
    for (int i = 0; i < 4; ++i) power *= power;
    return power;
  }

  void consider(Step& best, Step step, double gain) const {
    if (gain > best.gain) best = step, best.gain = gain;
  }

  double gain_of_exchange(std::size_t i, std::size_t j) const {
    if (!can_exchange(i, j)) return 0;
    const double more = share(expert_[j]) - share(expert_[i]);
    const double first = rank_[i / of_rank_], second = rank_[j / of_rank_];
    return cost(first) + cost(second) - cost(first + more) - cost(second - more);
  }

  double gain_of_copy(std::size_t place, std::int32_t e) const {
    if (!can_copy(place, e)) return 0;
    const std::int32_t old = expert_[place];
    const std::size_t here = place / of_rank_;
    const auto copies = static_cast<double>(places_of(e).size()), olds = static_cast<double>(places_of(old).size());
    const double less = load(e) / copies - load(e) / (copies + 1), more = load(old) / (olds - 1) - load(old) / olds;
    double gain = cost(rank_[here]) - cost(rank_[here] + load(e) / (copies + 1) - load(old) / olds);
    for (const std::size_t at : places_of(e)) {
      const std::size_t rank = at / of_rank_;
      const double both = rank_holds(rank, old) ? more : 0;  // this rank also has the expert that loses a copy
      gain += cost(rank_[rank]) - cost(rank_[rank] - less + both);
    }
    for (const std::size_t at : places_of(old)) {
      const std::size_t rank = at / of_rank_;
      if (rank != here && !rank_holds(rank, e)) gain += cost(rank_[rank]) - cost(rank_[rank] + more);
    }
    return gain;
  }

  void exchange(std::size_t i, std::size_t j) {
    const double more = share(expert_[j]) - share(expert_[i]);
    rank_[i / of_rank_] += more;
    rank_[j / of_rank_] -= more;
    *std::find(places_of(expert_[i]).begin(), places_of(expert_[i]).end(), i) = j;
    *std::find(places_of(expert_[j]).begin(), places_of(expert_[j]).end(), j) = i;
    std::swap(expert_[i], expert_[j]);
  }

  void put(std::size_t place, std::int32_t e) {
    const std::int32_t old = expert_[place];
    for (const std::int32_t of : {old, e})
      for (const std::size_t at : places_of(of)) rank_[at / of_rank_] -= share(of);
    auto& left = places_of(old);
    left.erase(std::find(left.begin(), left.end(), place));
    places_of(e).push_back(place);
    expert_[place] = e;
    for (const std::int32_t of : {old, e})
      for (const std::size_t at : places_of(of)) rank_[at / of_rank_] += share(of);
  }

  std::vector<double> loads_;
  std::vector<std::int32_t> expert_;
  std::size_t of_rank_;
  std::vector<std::vector<std::size_t>> places_;  ///< places of each expert
  std::vector<double> rank_;
};

/// The best table seen so far.
class Best {
 public:
  Best(const std::vector<std::int32_t>& old, std::int32_t ranks, double price)
      : old_(old), of_rank_(old.size() / static_cast<std::size_t>(ranks)), price_(price) {}

  void see(const Table& table) {
    const double fullest = table.fullest(), cost = fullest + price_ * moves_to(table.experts());
    if (!experts.empty() && cost >= cost_) return;
    experts = table.experts(), cost_ = cost, load = fullest;
  }

  std::vector<std::int32_t> experts;
  double load = 0;

 private:
  double moves_to(const std::vector<std::int32_t>& fresh) const {
    int moves = 0;
    for (std::size_t place = 0; place < fresh.size(); ++place) {
      const auto first = old_.begin() + static_cast<std::ptrdiff_t>(place / of_rank_ * of_rank_);
      const auto end = first + static_cast<std::ptrdiff_t>(of_rank_);
      moves += std::find(first, end, fresh[place]) == end;
    }
    return moves;
  }

  const std::vector<std::int32_t>& old_;
  std::size_t of_rank_;
  double price_, cost_ = 0;
};

void climb(Table& table, Best& best) {
  best.see(table);
  for (std::size_t step = 0; step < 4 * table.experts().size() && table.improve(); ++step) best.see(table);
}

}  // namespace

Tables moecl(const BalanceProblem& problem) {
  constexpr double near_enough = 1.005;  // of the bound
  constexpr std::size_t most_work = 60000, steps_of_a_kick = 3;
  const auto experts = static_cast<std::size_t>(problem.experts), places = static_cast<std::size_t>(problem.places);
  BalanceProblem flat = problem;
  flat.expert_groups = flat.nodes = 1;
  const Tables start = deepseek(flat);
  Tables tables;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(problem.layers); ++layer) {
    std::vector<double> loads(problem.loads.begin() + static_cast<std::ptrdiff_t>(layer * experts),
                              problem.loads.begin() + static_cast<std::ptrdiff_t>((layer + 1) * experts));
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / problem.ranks;
    for (double& load : loads) load = mean > 0 ? load / mean : 0;
    const auto row = [&](const std::vector<std::int32_t>& of) {
      const auto first = of.begin() + static_cast<std::ptrdiff_t>(layer * places);
      return std::vector<std::int32_t>(first, first + problem.places);
    };
    std::vector<std::int32_t> old(places);
    for (std::size_t place = 0; place < places; ++place) old[place] = static_cast<std::int32_t>(place % experts);
    const bool is_given = !problem.current.empty();
    if (is_given) old = row(problem.current);

    Best best(old, problem.ranks, is_given ? problem.move_price : 0);
    Table greedy(loads, row(start.logical_of), problem.ranks), kept(loads, old, problem.ranks);
    climb(kept, best);
    climb(greedy, best);
    // Lower bound of the fullest rank's load: the mean, and the smallest possible share of the largest expert.
    const std::int32_t most_copies = std::min(problem.ranks, problem.places - problem.experts + 1);
    const double bound = std::max(1.0, *std::max_element(loads.begin(), loads.end()) / most_copies);
    std::mt19937 engine(1);
    for (std::size_t kick = 0; kick < most_work / places && best.load > near_enough * bound; ++kick) {
      Table trial(loads, best.experts, problem.ranks);
      for (std::size_t step = 0; step < steps_of_a_kick; ++step) trial.disturb(engine);
      climb(trial, best);
    }
    tables.logical_of.insert(tables.logical_of.end(), best.experts.begin(), best.experts.end());
  }
  return tables;
}

}  // namespace moecl::balancers
