#include "dispatch/strategies/gathered_choices.hpp"

#include <algorithm>
#include <numeric>

namespace moecl {

struct GatheredChoices::Layout {
  WorkspaceLayout workspace;
  TensorView ids;  ///< of all dp ranks; absent if there is only one
  SortLayout sort;

  // A rank without experts sorts by one expert that no token chose.
  Layout(const GatheredChoices& of, std::int64_t tokens)
      : ids(workspace.add(DType::i32, {of.rank_.dp.size() > 1 ? tokens : 0, of.top_k_})),
        sort(workspace, tokens * of.top_k_, std::max(of.rank_.local_experts, 1),
             of.rank_.ep.rank_stream().device->caps) {}
};

StepBytes GatheredChoices::bytes(const std::vector<std::int64_t>& tokens) const {
  std::vector<std::int64_t> counts;
  count_by_dp_rank(rank_, tokens, counts);
  const Layout layout(*this, std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  return {layout.workspace.total_bytes()};
}

std::optional<expert_sort::Args> GatheredChoices::prepare(const TokensIn& tokens, BufferView /*workspace*/) {
  ids_ = tokens.ids;
  count_by_dp_rank(rank_, *tokens.tokens_of_ranks, tokens_);
  const Layout layout(*this, std::accumulate(tokens_.begin(), tokens_.end(), std::int64_t{0}));
  const BufferView memory = memory_.take(*rank_.ep.stream().context, layout.workspace.total_bytes());
  const bool alone = rank_.dp.size() == 1;
  const std::int32_t first = rank_.local_experts > 0 ? rank_.first_expert : rank_.experts;
  sort_ = layout.sort.in(memory, alone ? ids_ : tensor_in(memory, layout.ids), first,
                         std::max(rank_.experts, first + layout.sort.experts), tokens.fault);
  if (alone) return sort_;
  return std::nullopt;
}

void GatheredChoices::begin_dispatch() {
  if (rank_.dp.size() == 1) return;
  // until_read: the next step overwrites these ids.
  Communicator::Exchange(rank_.dp).gather({piece_of(ids_, sort_.ids)}, tokens_, Shown::until_read);
}

RoutedRows GatheredChoices::receive() {
  if (rank_.dp.size() > 1) expert_sort::enqueue(rank_.ep.stream(), sort_);
  RoutedRows rows;
  rows.row_ends = sort_.row_ends;
  rows.rows = sort_.ids.elements();
  return rows;
}

}  // namespace moecl
