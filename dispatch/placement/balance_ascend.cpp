// The policies of vllm-ascend that use the loads of a single stage.
#include "dispatch/placement/balance.hpp"

namespace moecl::balancers {
namespace {

using Rows = std::vector<std::vector<std::int32_t>>;

/// The current table of one layer: the experts of each rank, and each expert's load summed over its places.
struct Layer {
  Rows experts;
  std::vector<double> load;
  double fullest = 0;  ///< load of the fullest rank, as counted
  double total = 0;

  Layer(const BalanceProblem& problem, std::size_t layer)
      : experts(static_cast<std::size_t>(problem.ranks)), load(static_cast<std::size_t>(problem.experts)) {
    const std::int32_t of_rank = problem.places / problem.ranks;
    const std::size_t first = layer * static_cast<std::size_t>(problem.places);
    for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
      double sum = 0;
      for (std::int32_t place = rank * of_rank; place < (rank + 1) * of_rank; ++place) {
        const std::size_t at = first + static_cast<std::size_t>(place);
        experts[static_cast<std::size_t>(rank)].push_back(problem.current[at]);
        load[static_cast<std::size_t>(problem.current[at])] += problem.place_loads[at];
        sum += problem.place_loads[at];
      }
      fullest = std::max(fullest, sum);
      total += sum;
    }
  }
};

/// Appends the next layer to the tables; experts that stay on a rank keep their place.
void append(Tables& tables, const Rows& old, const Rows& fresh) {
  for (std::size_t rank = 0; rank < old.size(); ++rank) {
    std::vector<std::int32_t> row = fresh[rank];
    keep_places(old[rank].data(), row.data(), row.size());
    tables.logical_of.insert(tables.logical_of.end(), row.begin(), row.end());
  }
}

/// Places an expert on the lightest rank that has room and does not hold it. If all with room hold it: on the lightest.
void place(Rows& rows, std::vector<double>& loads, std::size_t of_rank, std::int32_t expert, double load) {
  std::size_t best = rows.size(), doubled = rows.size();
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].size() == of_rank) continue;
    std::size_t& found = holds(rows[rank], expert) ? doubled : best;
    if (found == rows.size() || loads[rank] < loads[found]) found = rank;
  }
  const std::size_t rank = best < rows.size() ? best : doubled;
  rows[rank].push_back(expert);
  loads[rank] += load;
}

/// Sorts experts by falling load; of equal loads, the later in `order` comes first.
void sort_reversed(std::vector<std::int32_t>& order, const std::vector<double>& load) {
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
  });
  std::reverse(order.begin(), order.end());
}

Rows place_by_default(const BalanceProblem& problem, Layer& layer, double& fullest) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::vector<std::int32_t> order(layer.load.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::int32_t> added(layer.load.size());
  for (std::int32_t copy = problem.experts; copy < problem.places; ++copy) {
    sort_reversed(order, layer.load);
    const auto most = static_cast<std::size_t>(order.front());
    const double copies = ++added[most];
    layer.load[most] = layer.load[most] * copies / (copies + 1);
  }
  Rows rows(ranks);
  std::vector<double> loads(ranks);
  std::size_t rank = 0;
  for (std::size_t e = 0; e < added.size(); ++e)
    for (std::int32_t copy = 0; copy < added[e]; ++copy, ++rank) {
      rows[rank].push_back(static_cast<std::int32_t>(e));
      loads[rank] += layer.load[e];
    }
  sort_reversed(order, layer.load);
  for (const std::int32_t expert : order)
    place(rows, loads, static_cast<std::size_t>(problem.places / problem.ranks), expert,
          layer.load[static_cast<std::size_t>(expert)]);
  fullest = *std::max_element(loads.begin(), loads.end());
  return rows;
}

// --- swift -----------------------------------------------------------------------------------------------------------

/// Balances a block of ranks; experts move only among these ranks.
class Swift {
 public:
  Swift(Rows experts, const std::vector<double>& load, double mean)
      : rows_(std::move(experts)),
        load_(load),
        mean_(mean),
        ranks_(rows_.size()),
        home_(load.size(), -1),
        free_(ranks_),
        sums_(ranks_),
        received_(ranks_),
        moved_(ranks_, std::vector<bool>(ranks_)) {}

  /// Returns the new rows, and in `fullest` the fullest rank's load.
  Rows balance(double& fullest) {
    find_homes();
    place_copies(add_copies());
    if (std::any_of(free_.begin(), free_.end(), [](const auto& slots) { return !slots.empty(); })) fill();
    for (int round = 0; round < most_rounds && swap(); ++round) {
    }
    fullest = *std::max_element(sums_.begin(), sums_.end());
    return rows_;
  }

 private:
  static constexpr int most_rounds = 100;
  static constexpr double least_gain = 0.01;  ///< of the mean

  float& share(std::int32_t expert) { return shares_[static_cast<std::size_t>(expert)]; }

  /// An expert's home is its first place, where the first places of all ranks come before the second ones, and so on.
  /// All its other places become free.
  void find_homes() {
    for (std::size_t slot = 0; slot < rows_.front().size(); ++slot)
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const auto expert = static_cast<std::size_t>(rows_[rank][slot]);
        if (home_[expert] >= 0)
          free_[rank].push_back(slot);
        else
          home_[expert] = static_cast<std::int32_t>(rank);
      }
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (const std::size_t slot : free_[rank]) rows_[rank][slot] = -1;
  }

  /// The number of copies that each expert gets besides its home.
  std::vector<std::int32_t> add_copies() {
    std::vector<double> load = load_;
    std::vector<std::int32_t> added(load.size());
    std::size_t places = 0;
    for (const auto& slots : free_) places += slots.size();
    for (std::size_t place = 0; place < places; ++place) {
      std::vector<std::int32_t> order(load.size());
      std::iota(order.begin(), order.end(), 0);
      sort_reversed(order, load);
      for (const std::int32_t expert : order) {
        const auto e = static_cast<std::size_t>(expert);
        if (home_[e] < 0 || added[e] + 1 >= static_cast<std::int32_t>(ranks_)) continue;
        load[e] = load[e] * (added[e] + 2) / (added[e] + 3);
        ++added[e];
        break;
      }
    }
    shares_.assign(load.begin(), load.end());
    return added;
  }

  void place_copies(const std::vector<std::int32_t>& added) {
    copies_.assign(load_.size(), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (const std::int32_t expert : rows_[rank])
        if (expert >= 0) sums_[rank] += share(expert), ++copies_[static_cast<std::size_t>(expert)];
    const auto load_of = [&](std::int32_t e) { return added[static_cast<std::size_t>(e)] > 0 ? share(e) : -1; };
    for (const std::int32_t expert : falling(load_.size(), load_of))
      for (std::int32_t copy = 0; copy < added[static_cast<std::size_t>(expert)]; ++copy) {
        const auto home = static_cast<std::size_t>(home_[static_cast<std::size_t>(expert)]);
        std::size_t best = ranks_;
        for (std::size_t rank = 0; rank < ranks_; ++rank)
          if (!free_[rank].empty() && !holds(rows_[rank], expert) && !moved_[home][rank] &&
              (best == ranks_ || sums_[rank] < sums_[best]))
            best = rank;
        if (best == ranks_) continue;
        moved_[home][best] = true;
        put(best, expert);
        sums_[best] += share(expert);
      }
  }

  /// Puts an expert into the rank's last free place.
  void put(std::size_t rank, std::int32_t expert) {
    rows_[rank][free_[rank].back()] = expert;
    free_[rank].pop_back();
    received_[rank].push_back(expert);
    ++copies_[static_cast<std::size_t>(expert)];
  }

  /// Fills the remaining places with the experts of most load a copy, counted by the copies that were really placed.
  void fill() {
    std::vector<double> load(load_.size());
    for (std::size_t e = 0; e < load.size(); ++e) load[e] = copies_[e] > 0 ? load_[e] / copies_[e] : -1;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      while (!free_[rank].empty()) {
        std::vector<std::int32_t> order(load.size());
        std::iota(order.begin(), order.end(), 0);
        sort_reversed(order, load);
        const auto fits =
            std::find_if(order.begin(), order.end(), [&](std::int32_t expert) { return !holds(rows_[rank], expert); });
        const std::int32_t expert = fits != order.end() ? *fits : order.front();
        const auto e = static_cast<std::size_t>(expert);
        load[e] = load[e] * copies_[e] / (copies_[e] + 1);
        put(rank, expert);
      }
    shares_.assign(load.begin(), load.end());
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      sums_[rank] = 0;
      for (const std::int32_t expert : rows_[rank]) sums_[rank] += share(expert);
    }
  }

  /// The exchange of two experts between two ranks after which the larger of both loads is smallest.
  struct Pair {
    std::size_t from = 0, to = 0;
    float most = 0;
    bool found = false;
  };
  Pair best_pair(std::size_t full, std::size_t other) {
    Pair best;
    for (std::size_t i = 0; i < rows_[full].size(); ++i)
      for (std::size_t j = 0; j < rows_[other].size(); ++j) {
        const std::int32_t a = rows_[full][i], b = rows_[other][j];
        if (holds(rows_[other], a) || holds(rows_[full], b) || holds(received_[full], a) || holds(received_[other], b))
          continue;
        const float most = std::max(sums_[full] - share(a) + share(b), sums_[other] - share(b) + share(a));
        if (!best.found || most < best.most) best = {i, j, most, true};
      }
    return best;
  }

  bool swap() {
    std::vector<std::int32_t> order =
        rising(ranks_, [&](std::int32_t r) { return sums_[static_cast<std::size_t>(r)]; });
    const auto full = static_cast<std::size_t>(order.back());
    order.pop_back();
    for (const std::int32_t rank : order) {
      const auto other = static_cast<std::size_t>(rank);
      if (moved_[full][other] || moved_[other][full]) continue;
      const Pair pair = best_pair(full, other);
      if (!pair.found || sums_[full] - pair.most < least_gain * mean_) continue;
      std::int32_t &a = rows_[full][pair.from], &b = rows_[other][pair.to];
      sums_[full] += share(b) - share(a);
      sums_[other] += share(a) - share(b);
      received_[full].push_back(b), received_[other].push_back(a);
      moved_[full][other] = moved_[other][full] = true;
      std::swap(a, b);
      return true;
    }
    return false;
  }

  Rows rows_;
  const std::vector<double>& load_;
  double mean_;
  std::size_t ranks_;
  std::vector<std::int32_t> home_, copies_;
  std::vector<std::vector<std::size_t>> free_;  ///< free places of each rank, for copies
  std::vector<float> shares_, sums_;
  Rows received_;
  std::vector<std::vector<bool>> moved_;  ///< [from][to]: an expert has moved
};

double fullest_of(const Rows& rows, const std::vector<double>& load) {
  std::vector<std::int32_t> copies(load.size());
  for (const auto& row : rows)
    for (const std::int32_t expert : row) ++copies[static_cast<std::size_t>(expert)];
  double fullest = 0;
  for (const auto& row : rows) {
    double sum = 0;
    for (const std::int32_t e : row) sum += load[static_cast<std::size_t>(e)] / copies[static_cast<std::size_t>(e)];
    fullest = std::max(fullest, sum);
  }
  return fullest;
}

}  // namespace

Tables ascend_default(const BalanceProblem& problem) {
  Tables tables;
  for (std::size_t l = 0; l < static_cast<std::size_t>(problem.layers); ++l) {
    Layer layer(problem, l);
    double fullest = 0;
    append(tables, layer.experts, place_by_default(problem, layer, fullest));
    tables.before.push_back(layer.fullest);
    tables.after.push_back(fullest);
  }
  return tables;
}

Tables ascend_swift(const BalanceProblem& problem) {
  constexpr double worth_it = 1.01;
  Tables tables;
  double mean = 0;
  const auto block = static_cast<std::size_t>(
      problem.node_redundant && problem.ranks_per_node > 0 ? problem.ranks_per_node : problem.ranks);
  for (std::size_t l = 0; l < static_cast<std::size_t>(problem.layers); ++l) {
    const Layer layer(problem, l);
    if (l == 0) mean = layer.total / problem.ranks;  // as the reference: compares with the mean of layer 0
    const double before = fullest_of(layer.experts, layer.load), ratio = before * problem.ranks / layer.total;
    tables.before.push_back(before);
    tables.after.push_back(before);
    if (!(ratio >= worth_it)) {
      append(tables, layer.experts, layer.experts);
      continue;
    }
    Rows rows;
    double after = 0;
    for (std::size_t rank = 0; rank < layer.experts.size(); rank += block) {
      double fullest = 0;
      const auto first = layer.experts.begin() + static_cast<std::ptrdiff_t>(rank);
      for (auto& row :
           Swift(Rows(first, first + static_cast<std::ptrdiff_t>(block)), layer.load, mean).balance(fullest))
        rows.push_back(std::move(row));
      after = std::max(after, fullest);
    }
    append(tables, layer.experts, after / mean < ratio ? rows : layer.experts);
    tables.after.back() = after;
  }
  return tables;
}

}  // namespace moecl::balancers
