// MC2's windows as slabs that every rank pulls: all tokens of the others, and what they have for its own.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/window_slots.hpp>

#include "dispatch/strategies/mc2_windows.hpp"

namespace moecl {
namespace {

class PulledWindows final : public Mc2Windows {
 public:
  PulledWindows(const ExpertRank& rank, const ExpertProblem& problem) : rank_(rank), problem_(problem) {}

  Mc2Received dispatch(const Mc2Tokens& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int32_t ranks = rank_.ep.size(), top_k = problem_.top_k;
    const std::int64_t places = ranks * tokens.capacity;
    WorkspaceLayout layout;
    const TensorView ids = layout.add(DType::i32, {places, top_k}),
                     weights = layout.add(DType::f32, {tokens.weights.present() ? places : 0, top_k});
    const WireRows::Layout own(layout, tokens.row, tokens.row.scale ? tokens.x.codes.shape[0] : 0, problem_.hidden),
        window(layout, tokens.row, places, problem_.hidden);
    const BufferView memory = dispatch_memory_.reserve(*stream.context, layout.total_bytes());
    window_slots::enqueue(
        stream, window_slots::TokenReturnRows{tokens.ids, rank_.ep_first_expert, rank_.experts, ranks, tokens.capacity,
                                              tokens.sums, tokens.return_rows, tokens.fault});
    const WireRows mine = packed(stream, tokens.x, own, memory);
    Mc2Received received{window.in(memory), tensor_in(memory, ids), {}};
    if (places > 0) enqueue_fill(stream, received.ids.buffer, 0xFFFFFFFFU);
    rank_.ep.fork();
    WireRows::each(mine, received.rows, [&](const auto& from, const auto& to) { to_everybody(tokens, from, to); });
    to_everybody(tokens, tokens.ids, received.ids);
    if (tokens.weights.present()) {
      received.weights = tensor_in(memory, weights);
      to_everybody(tokens, tokens.weights, received.weights);
    }
    return received;
  }

  WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                   const expert_sort::Args& in_order) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int64_t places = rank_.ep.size() * tokens.capacity * tokens.return_rows_each();
    WorkspaceLayout layout;
    const WireRow row = WireRow::to_home(problem_, DType::f32);
    const WireRows::Layout own(layout, row, places, problem_.hidden), window(layout, row, places, problem_.hidden);
    const BufferView memory = combine_memory_.reserve(*stream.context, layout.total_bytes());
    const WireRows leaving = own.in(memory), home = window.in(memory);
    if (tokens.sums) {
      combine::Args sum;
      sum.rows = rows;
      sum.slot_rows = in_order.slot_rows;
      sum.weights = received.weights;
      sum.out = leaving.codes;
      combine::enqueue(stream, sum);
    } else {
      pack_rows(stream, {rows, {}}, in_order.slot_rows, 1, {}, leaving);
    }
    rank_.ep.fork();
    WireRows::each(leaving, home, [&](const auto& from, const auto& to) { bring_home(tokens, from, to); });
    return home;
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return dispatch_memory_.capacity_bytes() + combine_memory_.capacity_bytes();
  }

 private:
  /// Rows of every rank's tokens, `each` a token, in slabs of `all`.
  Communicator::Blocks slabs(const Mc2Tokens& tokens, const TensorView& all, std::int64_t each) const {
    Communicator::Blocks blocks;
    for (std::size_t r = 0; r < tokens.each.size(); ++r) {
      blocks.offsets.push_back(r * bytes_of(all, tokens.capacity * each));
      blocks.bytes.push_back(bytes_of(all, tokens.each[r] * each));
    }
    return blocks;
  }
  /// Rows of this rank's tokens, `each` a token, for or from every rank: the same ones, or slabs `apart`.
  Communicator::Blocks own(const Mc2Tokens& tokens, const TensorView& all, std::int64_t each, bool apart) const {
    const auto ranks = static_cast<std::size_t>(rank_.ep.size());
    Communicator::Blocks blocks{std::vector<std::uint64_t>(ranks),
                                std::vector<std::uint64_t>(ranks, bytes_of(all, tokens.ids.shape[0] * each))};
    for (std::size_t r = 0; apart && r < ranks; ++r) blocks.offsets[r] = r * bytes_of(all, tokens.capacity * each);
    return blocks;
  }
  static BufferView whole(const TensorView& view) { return view.buffer.slice(0, view.size_bytes()); }

  void to_everybody(const Mc2Tokens& tokens, const TensorView& mine, const TensorView& all) {
    rank_.ep.all_to_all_v(whole(mine), own(tokens, all, 1, false), whole(all), slabs(tokens, all, 1));
  }
  void bring_home(const Mc2Tokens& tokens, const TensorView& results, const TensorView& home) {
    const std::int64_t each = tokens.return_rows_each();
    rank_.ep.all_to_all_v(whole(results), slabs(tokens, results, each), whole(home), own(tokens, home, each, true));
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  Workspace dispatch_memory_, combine_memory_;
};

}  // namespace

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<PulledWindows>(rank, problem);
}

}  // namespace moecl
