#include "host/layer/shared_group.hpp"

#include <numeric>

#include "dispatch/step_memory.hpp"
#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {

SharedGroup::Layout::Layout(WorkspaceLayout& workspace, const SharedGroup& group, std::int64_t tokens,
                            std::int64_t group_tokens, std::int64_t hidden, DType dtype) {
  if (group.brings_tokens()) x = workspace.add(dtype, {group_tokens, hidden});
  if (group.brings_tokens() || group.divides_tokens()) rows = workspace.add(DType::f32, {tokens, hidden});
  if (group.divides_tokens()) gate_logits = workspace.add(DType::f32, {tokens, 1});
  if (group.adds_parts()) total = workspace.add(DType::f32, {tokens, hidden});
}

std::span<const std::int64_t> SharedGroup::counts(const std::vector<std::int64_t>& of_ranks) const {
  return std::span(of_ranks).subspan(static_cast<std::size_t>(first_rank_), static_cast<std::size_t>(tp_.size()));
}

std::int64_t SharedGroup::tokens(const std::vector<std::int64_t>& of_ranks, std::int64_t own) const {
  if (!brings_tokens()) return own;
  const std::span<const std::int64_t> each = counts(of_ranks);
  return std::accumulate(each.begin(), each.end(), std::int64_t{0});
}

Share SharedGroup::share(std::int64_t tokens, bool reduce_results) const {
  const bool whole = own_tokens_ || (reduce_results ? !divides_tokens() : sharding_ == SharedSharding::intermediate);
  return whole ? Share{0, tokens} : share_of(tokens, tp_.size(), tp_.rank());
}

TensorView SharedGroup::bring(const TensorView& x, const std::vector<std::int64_t>& of_ranks, const Layout& layout,
                              BufferView workspace) const {
  const TensorView all = tensor_in(workspace, layout.x);
  Communicator::Exchange(tp_).gather({piece_of(x, all)}, counts(of_ranks), Shown::until_next);  // `gather` is the next
  return all;
}

SharedExperts::Output SharedGroup::gather(const SharedExperts::Output& mine, const std::vector<std::int64_t>& of_ranks,
                                          const Layout& layout, BufferView workspace, StepMemory& memory) const {
  if (!mine.rows.present() || !meets()) return mine;
  SharedExperts::Output all = mine;
  Communicator::Exchange exchange(tp_);
  if (adds_parts()) {
    add_up(all.rows, memory);
  } else if (brings_tokens()) {
    all.rows = tensor_in(workspace, layout.rows);
    const std::span<const std::int64_t> each = counts(of_ranks);
    exchange.reduce_scatter(mine.rows, all.rows, each, Shown::until_read);
    const std::int64_t first = std::accumulate(each.begin(), each.begin() + tp_.rank(), std::int64_t{0});
    if (mine.gate_logits.present()) all.gate_logits = mine.gate_logits.rows(first, all.rows.shape[0]);
  } else {
    all.rows = tensor_in(workspace, layout.rows);
    std::vector<Communicator::Exchange::Piece> pieces = {piece_of(mine.rows, all.rows)};
    if (mine.gate_logits.present()) {
      all.gate_logits = tensor_in(workspace, layout.gate_logits);
      pieces.push_back(piece_of(mine.gate_logits, all.gate_logits));
    }
    exchange.gather(pieces, shares_of(all.rows.shape[0], tp_.size()), Shown::until_read);
  }
  return all;
}

void SharedGroup::add_up(const TensorView& total, StepMemory& memory) const {
  const Share mine = Communicator::Exchange::summed_by(total, tp_.size(), tp_.rank());
  WorkspaceLayout layout;
  const TensorView share = layout.add(DType::f32, {mine.count, total.shape[1]});
  const BufferView shown = memory.lasting(*tp_.stream().context, layout.total_bytes());
  Communicator::Exchange(tp_).all_reduce(total, tensor_in(shown, share), Shown::until_next);
}

}  // namespace moecl
