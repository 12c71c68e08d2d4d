// EPLB: the policies of DeepSeek and of vLLM, which differ in the type of their numbers.
#include "dispatch/placement/balance.hpp"

namespace moecl::balancers {
namespace {

/// A heap whose first item may be read and changed.
template <class Item>
class Heap {
 public:
  explicit Heap(std::vector<Item> items) : items_(std::move(items)) {
    for (std::size_t at = items_.size() / 2; at-- > 0;) sink(at);
  }
  Item& first() { return items_.front(); }
  void first_changed() { sink(0); }
  void remove_first() {
    items_.front() = items_.back();
    items_.pop_back();
    if (!items_.empty()) sink(0);
  }

 private:
  void sink(std::size_t at) {
    const Item item = items_[at];
    for (std::size_t child = 2 * at + 1; child < items_.size(); child = 2 * at + 1) {
      if (child + 1 < items_.size() && items_[child + 1] < items_[child]) ++child;
      if (!(items_[child] < item)) break;
      items_[at] = items_[child];
      at = child;
    }
    items_[at] = item;
  }
  std::vector<Item> items_;
};

/// The result of packing: the bin of each item, and its place in the bin.
struct Packed {
  std::vector<std::int32_t> bin, place;
};

/// Packs items by falling weight, each into the lightest bin with room; ties go to the lower number.
template <class Number>
Packed pack(const std::vector<Number>& weights, std::int32_t bins) {
  const std::size_t items = weights.size();
  const auto room = static_cast<std::int32_t>(items) / bins;
  Packed packed{std::vector<std::int32_t>(items), std::vector<std::int32_t>(items)};
  if (room == 1) {
    std::iota(packed.bin.begin(), packed.bin.end(), 0);
    return packed;
  }
  struct Weighed {
    Number weight;
    std::size_t item;
    bool operator<(const Weighed& other) const {
      return weight != other.weight ? weight > other.weight : item < other.item;
    }
  };
  std::vector<Weighed> order;
  order.reserve(items);
  for (std::size_t item = 0; item < items; ++item) order.push_back({weights[item], item});
  std::sort(order.begin(), order.end());
  struct Bin {
    Number weight;
    std::int32_t number, items;
    bool operator<(const Bin& other) const {
      return weight != other.weight ? weight < other.weight : number < other.number;
    }
  };
  std::vector<Bin> empty;
  for (std::int32_t bin = 0; bin < bins; ++bin) empty.push_back({0, bin, 0});
  Heap<Bin> open(std::move(empty));
  for (const auto& [weight, item] : order) {
    Bin& lightest = open.first();
    packed.bin[item] = lightest.number;
    packed.place[item] = lightest.items;
    lightest.weight += weight;
    if (++lightest.items == room)
      open.remove_first();
    else
      open.first_changed();
  }
  return packed;
}

/// Copies of a node's experts: one each, then one at a time for the expert with most load a copy; ties go to the lower
/// number.
struct Copies {
  std::vector<std::int32_t> expert, number;  ///< of each copy: its expert, and its number among the expert's copies
  std::vector<std::int32_t> count;           ///< copies of each expert
};
template <class Number>
Copies replicate(const std::vector<float>& loads, std::size_t places) {
  Copies copies;
  copies.expert.resize(places);
  copies.number.assign(places, 0);
  copies.count.assign(loads.size(), 1);
  std::iota(copies.expert.begin(), copies.expert.begin() + static_cast<std::ptrdiff_t>(loads.size()), 0);
  if (places == loads.size()) return copies;
  struct Shared {
    Number share;
    std::size_t expert;
    bool operator<(const Shared& other) const {
      return share != other.share ? share > other.share : expert < other.expert;
    }
  };
  std::vector<Shared> all;
  for (std::size_t e = 0; e < loads.size(); ++e) all.push_back({loads[e], e});
  Heap<Shared> shares(std::move(all));
  for (std::size_t copy = loads.size(); copy < places; ++copy) {
    auto& [share, most] = shares.first();
    copies.expert[copy] = static_cast<std::int32_t>(most);
    copies.number[copy] = copies.count[most]++;
    share = static_cast<Number>(loads[most]) / static_cast<Number>(copies.count[most]);
    shares.first_changed();
  }
  return copies;
}

template <class Number>
void balance_layer(const BalanceProblem& problem, const double* loads, std::int32_t* logical_of,
                   std::int32_t* copy_of) {
  const bool hierarchical = problem.expert_groups % problem.nodes == 0;
  const std::int32_t nodes = hierarchical ? problem.nodes : 1, groups = hierarchical ? problem.expert_groups : 1;
  const std::int32_t of_group = problem.experts / groups, experts = problem.experts / nodes;
  const std::int32_t places = problem.places / nodes, ranks = problem.ranks / nodes, of_rank = places / ranks;

  std::vector<float> group_loads(static_cast<std::size_t>(groups));
  for (std::int32_t e = 0; e < problem.experts; ++e)
    group_loads[static_cast<std::size_t>(e / of_group)] += static_cast<float>(loads[e]);
  const Packed of_nodes = pack(std::vector<Number>(group_loads.begin(), group_loads.end()), nodes);
  // Experts ordered by node, then by the place of their group on the node.
  std::vector<std::int32_t> logical(static_cast<std::size_t>(problem.experts));
  for (std::int32_t e = 0; e < problem.experts; ++e) {
    const auto group = static_cast<std::size_t>(e / of_group);
    const std::int32_t slot = of_nodes.bin[group] * (groups / nodes) + of_nodes.place[group];
    const std::int32_t place = slot * of_group + e % of_group;
    logical[static_cast<std::size_t>(place)] = e;
  }
  std::vector<float> node_loads(static_cast<std::size_t>(experts));
  std::vector<Number> shares(static_cast<std::size_t>(places));
  for (std::int32_t node = 0; node < nodes; ++node) {
    const std::int32_t* const here = logical.data() + node * experts;
    for (std::size_t e = 0; e < node_loads.size(); ++e) node_loads[e] = static_cast<float>(loads[here[e]]);
    const Copies copies = replicate<Number>(node_loads, shares.size());
    for (std::size_t copy = 0; copy < shares.size(); ++copy) {
      const auto expert = static_cast<std::size_t>(copies.expert[copy]);
      shares[copy] = static_cast<Number>(node_loads[expert]) / static_cast<Number>(copies.count[expert]);
    }
    const Packed of_ranks = pack(shares, ranks);
    for (std::size_t copy = 0; copy < shares.size(); ++copy) {
      const std::int32_t place = node * places + of_ranks.bin[copy] * of_rank + of_ranks.place[copy];
      logical_of[place] = here[copies.expert[copy]];
      copy_of[place] = copies.number[copy];
    }
  }
}

template <class Number>
Tables balance_layers(const BalanceProblem& problem) {
  Tables tables;
  const auto places = static_cast<std::size_t>(problem.places), experts = static_cast<std::size_t>(problem.experts);
  const auto layers = static_cast<std::size_t>(problem.layers);
  tables.logical_of.resize(layers * places);
  tables.copy_of.resize(layers * places);
  for (std::size_t layer = 0; layer < layers; ++layer)
    balance_layer<Number>(problem, problem.loads.data() + layer * experts, tables.logical_of.data() + layer * places,
                          tables.copy_of.data() + layer * places);
  return tables;
}

}  // namespace

void keep_places(const std::int32_t* old, std::int32_t* row, std::size_t places) {
  const std::vector<std::int32_t> fresh(row, row + places);
  std::vector<bool> used(places), kept(places);
  for (std::size_t place = 0; place < places; ++place)
    for (std::size_t i = 0; i < places && !kept[place]; ++i)
      if (!used[i] && fresh[i] == old[place]) used[i] = kept[place] = true, row[place] = fresh[i];
  std::size_t next = 0;
  for (std::size_t place = 0; place < places; ++place) {
    if (kept[place]) continue;
    while (used[next]) ++next;
    row[place] = fresh[next++];
  }
}

Tables deepseek(const BalanceProblem& problem) { return balance_layers<float>(problem); }

Tables vllm(const BalanceProblem& problem) {
  Tables tables = balance_layers<double>(problem);
  tables.copy_of.clear();
  const auto of_rank = static_cast<std::size_t>(problem.places / problem.ranks);
  for (std::size_t at = 0; at < problem.current.size(); at += of_rank)
    keep_places(problem.current.data() + at, tables.logical_of.data() + at, of_rank);
  return tables;
}

}  // namespace moecl::balancers
