#include "dispatch/strategies/strategy_parts.hpp"

#include <moecl/combine.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/gather_rows.hpp>

namespace moecl {
namespace {

/// The parameters in which codes of one type may differ.
std::vector<double> scales_of(const OperandQuant& codes) {
  return {codes.quantized() ? 1.0 : 0.0, static_cast<double>(codes.rounding), codes.most_amax, codes.least_scale};
}

}  // namespace

std::vector<Agreed> agreed_about(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem) {
  return {{"strategy", kind},
          {"hidden", problem.hidden},
          {"top_k", problem.top_k},
          {"dtype", problem.dtype},
          {"wire", problem.wire},
          {"scales of codes", scales_of(problem.codes)},
          {"batched", problem.batched},
          {"rows_per_expert", problem.room},
          {"expert_output", problem.expert_output},
          {"experts", rank.experts},
          {"sharding", rank.sharding},
          {"ranks of a tp group", rank.tp.size()},
          {"ranks of a node", rank.node.size()}};
}

std::vector<std::int64_t> share_tokens(const char* what, const ExpertRank& rank, std::int64_t tokens,
                                       std::vector<Agreed> agreed) {
  const auto all = rank.ep.share(what, {tokens}, std::move(agreed));
  std::vector<std::int64_t> counts;
  counts.reserve(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t first = r / static_cast<std::size_t>(rank.tp.size()) * static_cast<std::size_t>(rank.tp.size());
    require(all[r][0] == all[first][0], "{}: ranks {} and {} are one tp group but have {} and {} tokens", what, first,
            r, all[first][0], all[r][0]);
    counts.push_back(all[r][0]);
  }
  return counts;
}

namespace {

/// The token counts of all ranks: asked in a meeting, or already agreed.
const std::vector<std::int64_t>& tokens_of_ranks(StrategyKind kind, const ExpertRank& rank,
                                                 const ExpertProblem& problem, const TokensIn& tokens,
                                                 std::vector<std::int64_t>& asked) {
  const std::int64_t mine = tokens.x.shape[0];
  if (tokens.tokens_of_ranks == nullptr) {
    std::vector<Agreed> agreed = agreed_about(kind, rank, problem);
    agreed.insert(agreed.end(), {{"weights", tokens.weights.present()},
                                 {"x", tokens.x.dtype},
                                 {"x_scale", tokens.x_scale.present()},
                                 {"type of x_scale", tokens.x_scale.dtype},
                                 {"x_group", tokens.x_group},
                                 {"reduce_results", tokens.reduce_results},
                                 {"capacity", tokens.capacity}});
    return asked = share_tokens("dispatch", rank, mine, std::move(agreed));
  }
  const std::vector<std::int64_t>& known = *tokens.tokens_of_ranks;
  require(known.size() == static_cast<std::size_t>(rank.ep.size()), "dispatch: tokens of {} ranks, there are {}",
          known.size(), rank.ep.size());
  require(known[static_cast<std::size_t>(rank.ep.rank())] == mine,
          "dispatch: {} tokens of this rank are agreed, it has {}", known[static_cast<std::size_t>(rank.ep.rank())],
          mine);
  return known;
}

}  // namespace

const std::vector<std::int64_t>& agree_on_tokens(StrategyKind kind, const ExpertRank& rank,
                                                 const ExpertProblem& problem, const TokensIn& tokens,
                                                 std::vector<std::int64_t>& asked) {
  const std::vector<std::int64_t>& all = tokens_of_ranks(kind, rank, problem, tokens, asked);
  std::int64_t total = 0;
  for (std::size_t r = 0; r < all.size(); r += static_cast<std::size_t>(rank.tp.size())) total += all[r];
  require(!problem.batched || problem.room == 0 || total <= problem.room,
          "dispatch: an expert has room for {} rows, and {} tokens may choose it", problem.room, total);
  return all;
}

Communicator::Exchange::Piece piece_of(const TensorView& from, const TensorView& to) {
  return {whole(from), whole(to), bytes_of(to, 1)};
}

void count_by_dp_rank(const ExpertRank& rank, const std::vector<std::int64_t>& of_ranks,
                      std::vector<std::int64_t>& counts) {
  counts.clear();
  for (std::size_t r = 0; r < of_ranks.size(); r += static_cast<std::size_t>(rank.tp.size()))
    counts.push_back(of_ranks[r]);
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

TensorView RowWeights::in_order(StreamView stream, TensorView weights, const expert_sort::Args& sort,
                                BufferView memory) const {
  if (!wanted || !weights.present()) return {};
  const TensorView out = tensor_in(memory, rows);
  gather_rows::enqueue(stream, {as_slots(weights), sort.sorted_slots, 1, sort.row_ends, sort.rows_per_expert, out});
  return out;
}

combine::Args combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                           TensorView share, TensorView sums, bool reduce, Shown stays) {
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
  // Gathers the shares of all tp ranks on each of them.
  const Communicator& tp = rank.tp;
  tp.fork();
  Communicator::Exchange(tp).gather({piece_of(share, sums)}, shares_of(sums.shape[0], tp.size()), stays);
  tp.join();
  return sums_alone(sums);
}

}  // namespace moecl
