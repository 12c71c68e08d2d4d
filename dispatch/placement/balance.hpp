#pragma once
// The policies of `balance`, one file each. Their problems have already been checked.
#include <moecl/balance.hpp>

#include <algorithm>
#include <numeric>

namespace moecl::balancers {

/// The tables of all layers.
struct Tables {
  std::vector<std::int32_t> logical_of;  ///< Shape: [L, P]
  std::vector<std::int32_t> copy_of;     ///< number of the copy at each place; empty: in the order of places
  std::vector<double> before, after;     ///< [L] load of the fullest rank by the policy's own count
};

Tables deepseek(const BalanceProblem& problem);
Tables vllm(const BalanceProblem& problem);
Tables ascend_default(const BalanceProblem& problem);
Tables ascend_swift(const BalanceProblem& problem);
/// @param layer_priority  out: the layers that change, by falling gain
Tables flashlb(const BalanceProblem& problem, BalanceHistory::State& history,
               std::vector<std::int32_t>& layer_priority);
Tables moecl(const BalanceProblem& problem);

/// Items by rising key; items of equal keys by number.
template <class Key>
std::vector<std::int32_t> rising(std::size_t count, Key key) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  return order;
}
/// Items by falling key; items of equal keys by number.
template <class Key>
std::vector<std::int32_t> falling(std::size_t count, Key key) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  return order;
}

inline bool holds(const std::vector<std::int32_t>& experts, std::int32_t expert) {
  return std::find(experts.begin(), experts.end(), expert) != experts.end();
}

/// Reorders `row`, the new experts of a rank: an expert of `old` keeps its place, the others fill the free places in
/// order.
void keep_places(const std::int32_t* old, std::int32_t* row, std::size_t places);

}  // namespace moecl::balancers
