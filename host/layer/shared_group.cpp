#include "host/layer/shared_group.hpp"

namespace moecl {
namespace {

/// `rows` of every rank of the group, one after the other. @param mine  of this rank's share of them
void gather_shares(Communicator& ranks, const TensorView& mine, const TensorView& rows) {
  std::vector<std::uint64_t> bytes;
  for (std::int32_t r = 0; r < ranks.size(); ++r)
    bytes.push_back(rows.rows(0, share_of(rows.shape[0], ranks.size(), r).count).size_bytes());
  ranks.all_gather_v(mine.buffer.slice(0, mine.size_bytes()), rows.buffer.slice(0, rows.size_bytes()), bytes);
}

}  // namespace

SharedGroup::Layout::Layout(WorkspaceLayout& workspace, const SharedGroup& group, std::int64_t tokens,
                            std::int64_t hidden) {
  if (!group.divides_tokens()) return;
  rows = workspace.add(DType::f32, {tokens, hidden});
  gate_logits = workspace.add(DType::f32, {tokens, 1});
}

Share SharedGroup::share(std::int64_t tokens, bool reduce_results) const {
  const bool whole = reduce_results ? !divides_tokens() : sharding_ == SharedSharding::intermediate;
  return whole ? Share{0, tokens} : share_of(tokens, tp_.size(), tp_.rank());
}

SharedExperts::Output SharedGroup::gather(const SharedExperts::Output& mine, const Layout& layout,
                                          BufferView workspace) const {
  if (!mine.rows.present() || !meets()) return mine;
  SharedExperts::Output all = mine;
  Communicator tp = tp_;
  tp.fork();
  if (sharding_ == SharedSharding::intermediate) {
    tp.all_reduce(all.rows);
  } else {
    all.rows = tensor_in(workspace, layout.rows);
    gather_shares(tp, mine.rows, all.rows);
    if (mine.gate_logits.present()) {
      all.gate_logits = tensor_in(workspace, layout.gate_logits);
      gather_shares(tp, mine.gate_logits, all.gate_logits);
    }
  }
  tp.join();
  return all;
}

}  // namespace moecl
