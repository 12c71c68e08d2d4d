#include "dispatch/strategies/strategy_parts.hpp"

#include <moecl/combine.hpp>
#include <moecl/expert_sort.hpp>

namespace moecl {
namespace {

/// By what codes of one type may differ.
std::vector<double> scales_of(const OperandQuant& codes) {
  return {codes.quantized() ? 1.0 : 0.0, static_cast<double>(codes.rounding), codes.most_amax, codes.least_scale};
}

}  // namespace

std::vector<std::int64_t> agree_on_tokens(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                          const TokensIn& tokens) {
  Communicator ep = rank.ep;
  std::vector<Agreed> agreed = {{"strategy", kind},
                                {"hidden", problem.hidden},
                                {"top_k", problem.top_k},
                                {"dtype", problem.dtype},
                                {"wire", problem.wire},
                                {"scales of codes", scales_of(problem.codes)},
                                {"experts", rank.experts},
                                {"sharding", rank.sharding},
                                {"ranks of a tp group", rank.tp.size()},
                                {"ranks of a node", rank.node.size()},
                                {"weights", tokens.weights.present()},
                                {"x", tokens.x.dtype},
                                {"x_scale", tokens.x_scale.present()},
                                {"type of x_scale", tokens.x_scale.dtype},
                                {"x_group", tokens.x_group},
                                {"reduce_results", tokens.reduce_results}};
  agreed.insert(agreed.end(), tokens.agreed.begin(), tokens.agreed.end());
  const auto all = ep.share("dispatch", {tokens.x.shape[0]}, std::move(agreed));
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t first = r / static_cast<std::size_t>(rank.tp.size()) * static_cast<std::size_t>(rank.tp.size());
    require(all[r][0] == all[first][0], "dispatch: ranks {} and {} are one tp group but have {} and {} tokens", first,
            r, all[first][0], all[r][0]);
    counts.push_back(all[r][0]);
  }
  return counts;
}

SortLayout::SortLayout(WorkspaceLayout& workspace, std::int64_t slot_count, std::int32_t expert_count,
                       const DeviceCaps& caps, std::int64_t batched_rows)
    : slots(slot_count),
      experts(expert_count),
      rows_per_expert(batched_rows),
      row_ends_(workspace.add(DType::i32, {experts})),
      sorted_slots_(workspace.add(DType::i32, {rows()})),
      slot_rows_(workspace.add(DType::i32, {slots})),
      scratch_(workspace.total_bytes()),
      scratch_bytes_(expert_sort::scratch_bytes(slots, experts, caps)) {
  workspace.add(scratch_bytes_);
}

expert_sort::Args SortLayout::in(BufferView memory, TensorView ids, std::int32_t first, std::int32_t total,
                                 TensorView fault) const {
  expert_sort::Args sort;
  sort.ids = ids;
  sort.first_expert = first;
  sort.end_expert = first + experts;
  sort.total_experts = total;
  sort.rows_per_expert = rows_per_expert;
  sort.row_ends = tensor_in(memory, row_ends_);
  sort.sorted_slots = tensor_in(memory, sorted_slots_);
  sort.slot_rows = tensor_in(memory, slot_rows_);
  sort.fault = fault;
  sort.scratch = memory.slice(scratch_, scratch_bytes_);
  return sort;
}

RoutedRows rows_in_order(StreamView stream, const WireRows& rows, const expert_sort::Args& sort, std::int32_t divisor,
                         const BatchedLayout& batched, BufferView memory) {
  RoutedRows routed;
  routed.row_ends = sort.row_ends;
  routed.rows = sort.sorted_slots.shape[0];
  routed.rows_per_expert = sort.rows_per_expert;
  WireRows in_order = rows;
  if (batched.rows) {
    in_order = batched.rows->in(memory);
    gather(stream, rows, sort.sorted_slots, divisor, sort.row_ends, sort.rows_per_expert, in_order);
  } else {  // the first product gathers its rows itself
    routed.index = sort.sorted_slots;
    routed.index_divisor = divisor;
  }
  routed.x = in_order.codes;
  routed.x_scale = in_order.scale;
  routed.x_group = in_order.group;
  return routed;
}

combine::Args combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                           TensorView share, TensorView sums, bool reduce) {
  combine::Args sum;
  sum.rows = rows.codes;
  sum.rows_scale = rows.scale;
  sum.slot_rows = slot_rows;
  sum.weights = weights;
  if (rank.tp.size() == 1) return sum;
  const StreamView stream = rank.ep.rank_stream();
  if (!reduce) {
    const Share mine = share_of(sums.shape[0], rank.tp.size(), rank.tp.rank());
    if (sums.size_bytes() > 0) enqueue_fill(stream, sums.buffer.slice(0, sums.size_bytes()), 0);
    sum.out = sums.rows(mine.begin, mine.count);
    combine::enqueue(stream, sum);
    return sums_alone(sums);
  }
  sum.out = share;
  combine::enqueue(stream, sum);
  // Every tp rank's share of the tokens, back to all of them.
  Communicator tp = rank.tp;
  std::vector<std::uint64_t> bytes;
  for (std::int32_t r = 0; r < tp.size(); ++r)
    bytes.push_back(bytes_of(sums.dtype, share_of(sums.shape[0], tp.size(), r).count, sums.shape[1]));
  tp.fork();
  tp.all_gather_v(share.buffer.slice(0, share.size_bytes()), sums.buffer.slice(0, sums.size_bytes()), bytes);
  tp.join();
  return sums_alone(sums);
}

}  // namespace moecl
