#include <moecl/placement_plan.hpp>

#include <algorithm>
#include <map>

#include "runtime/check.hpp"

namespace moecl {
namespace {

/// The ranks that hold each expert, in the order of its places.
std::map<std::int32_t, std::vector<std::int32_t>> ranks_of(const std::vector<std::int32_t>& table, std::int32_t each) {
  std::map<std::int32_t, std::vector<std::int32_t>> found;
  for (std::size_t place = 0; place < table.size(); ++place) {
    if (table[place] < 0) continue;
    std::vector<std::int32_t>& ranks = found[table[place]];
    const std::int32_t rank = static_cast<std::int32_t>(place) / each;
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);  // places of a rank are consecutive
  }
  return found;
}

}  // namespace

std::vector<std::vector<ExpertFlow>> schedule_moves(const std::vector<std::int32_t>& from_table,
                                                    const std::vector<std::int32_t>& to_table, std::int32_t ranks) {
  require(
      ranks >= 1 && from_table.size() == to_table.size() && from_table.size() % static_cast<std::size_t>(ranks) == 0,
      "moves: {} ranks, tables of {} and {} places", ranks, from_table.size(), to_table.size());
  const std::int32_t each = std::max(static_cast<std::int32_t>(from_table.size()) / ranks, 1);
  const auto holders = ranks_of(from_table, each);
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> flows;
  for (const auto& [expert, wanted] : ranks_of(to_table, each)) {
    const auto held = holders.find(expert);
    require(held != holders.end(), "moves: expert {} is wanted, and no rank has it", expert);
    const std::vector<std::int32_t>& senders = held->second;
    std::vector<std::int32_t> receivers;
    for (const std::int32_t rank : wanted)
      if (std::find(senders.begin(), senders.end(), rank) == senders.end()) receivers.push_back(rank);
    const std::size_t share = receivers.size() / senders.size();
    for (std::size_t r = 0; r < receivers.size(); ++r) {
      const std::size_t sender = r < share * senders.size() ? r / share : r - share * senders.size();
      flows[{senders[sender], receivers[r]}].push_back(expert);
    }
  }
  std::vector<ExpertFlow> sorted;
  for (auto& [pair, experts] : flows) sorted.push_back({pair.first, pair.second, std::move(experts)});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ExpertFlow& a, const ExpertFlow& b) { return a.experts.front() < b.experts.front(); });
  std::vector<std::vector<ExpertFlow>> batches;
  for (ExpertFlow& flow : sorted) {
    const auto meets = [&](const ExpertFlow& other) {
      return other.from == flow.from || other.from == flow.to || other.to == flow.from || other.to == flow.to;
    };
    auto fits = std::find_if(batches.begin(), batches.end(), [&](const std::vector<ExpertFlow>& batch) {
      return std::none_of(batch.begin(), batch.end(), meets);
    });
    if (fits == batches.end()) fits = batches.insert(batches.end(), std::vector<ExpertFlow>());
    fits->push_back(std::move(flow));
  }
  return batches;
}

}  // namespace moecl
