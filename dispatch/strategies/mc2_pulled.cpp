// MC2's windows as slabs that ranks pull from each other: in dispatch all tokens of the others, in combine their
// results for this rank's tokens.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/window_slots.hpp>

#include "dispatch/strategies/mc2_windows.hpp"

namespace moecl {
namespace {

class PulledWindows final : public Mc2Windows {
 public:
  PulledWindows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank), problem_(problem), step_memory_(memory) {}

  Mc2Received dispatch(const Mc2Tokens& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int32_t ranks = rank_.ep.size();
    const std::int64_t places = ranks * tokens.capacity;
    const DispatchLayout layout(*this, tokens);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    window_slots::enqueue(
        stream, window_slots::TokenReturnRows{tokens.ids, rank_.ep_first_expert, rank_.experts, ranks, tokens.capacity,
                                              tokens.sums, tokens.return_rows, tokens.fault});
    const WireRows mine = packed(stream, tokens.x, layout.own, memory);
    Mc2Received received{layout.window.in(memory), tensor_in(memory, layout.ids), {}};
    if (places > 0) enqueue_fill(stream, received.ids.buffer, 0xFFFFFFFFU);
    rank_.ep.fork();
    Pieces pieces;
    pieces.reserve(4);
    const auto to_everybody = [&](const TensorView& from, const TensorView& to) {
      pieces.push_back(piece_of(from, to));
    };
    WireRows::each(mine, received.rows, to_everybody);
    to_everybody(tokens.ids, received.ids);
    if (tokens.weighted) {
      received.weights = tensor_in(memory, layout.weights);
      to_everybody(tokens.weights, received.weights);
    }
    set_runs(tokens, 1);
    for (std::int64_t& first : own_.first) first = 0;  // every rank gets the same tokens
    Communicator::Exchange(rank_.ep).all_to_all(pieces, own_, slabs_, Shown::until_next);
    return received;
  }

  WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                   const expert_sort::Args& in_order) override {
    const StreamView stream = rank_.ep.rank_stream();
    const Results layout(*this, tokens);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    const WireRows leaving = layout.rows.in(outbox_.take(rank_, layout.workspace)), home = layout.rows.in(memory);
    if (problem_.experts_sum()) {
      pack_rows(stream, {rows, {}}, {}, 1, {}, leaving);
    } else if (tokens.sums) {
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
    Pieces pieces;
    pieces.reserve(2);
    WireRows::each(leaving, home,
                   [&](const TensorView& from, const TensorView& to) { pieces.push_back(piece_of(from, to)); });
    set_runs(tokens, tokens.return_rows_each());
    Communicator::Exchange(rank_.ep).all_to_all(pieces, slabs_, own_, Shown::until_next);
    return home;
  }

  StepBytes bytes(const Mc2Tokens& tokens, std::int64_t /*rows*/) const override {
    StepBytes bytes;
    bytes.windows = Results(*this, tokens).workspace.total_bytes();
    bytes.workspace = DispatchLayout(*this, tokens).workspace.total_bytes() + bytes.windows;
    return bytes;
  }
  std::uint64_t workspace_bytes() const noexcept override { return outbox_.bytes(); }

 private:
  using Pieces = std::vector<Communicator::Exchange::Piece>;

  struct DispatchLayout {
    WorkspaceLayout workspace;
    TensorView ids, weights;
    WireRows::Layout own, window;

    DispatchLayout(const PulledWindows& of, const Mc2Tokens& tokens)
        : DispatchLayout(of, tokens, of.rank_.ep.size() * tokens.capacity) {}
    DispatchLayout(const PulledWindows& of, const Mc2Tokens& tokens, std::int64_t places)
        : ids(workspace.add(DType::i32, {places, of.problem_.top_k})),
          weights(workspace.add(DType::f32, {tokens.weighted ? places : 0, of.problem_.top_k})),
          own(workspace, tokens.row, tokens.row.scale ? tokens.ids.shape[0] : 0, of.problem_.hidden),
          window(workspace, tokens.row, places, of.problem_.hidden) {}
  };
  /// Results of this rank for the tokens of all ranks, or of all ranks for its own tokens.
  struct Results {
    WorkspaceLayout workspace;
    WireRows::Layout rows;

    Results(const PulledWindows& of, const Mc2Tokens& tokens)
        : rows(workspace, WireRow::to_home(of.problem_, DType::f32),
               of.rank_.ep.size() * tokens.capacity * tokens.return_rows_each(), of.problem_.hidden) {}
  };

  /// Sets the runs of an exchange of all ranks' tokens, with `each` rows for a token.
  void set_runs(const Mc2Tokens& tokens, std::int64_t each) {
    slabs_.clear(), own_.clear();
    for (std::size_t r = 0; r < tokens.each.size(); ++r) {
      const std::int64_t slab = static_cast<std::int64_t>(r) * tokens.capacity * each;
      slabs_.add(slab, tokens.each[r] * each);
      own_.add(slab, tokens.ids.shape[0] * each);
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  StepMemory& step_memory_;
  Outbox outbox_;
  // Runs of the exchange under way.
  Communicator::Exchange::Runs slabs_;  ///< every rank's tokens, a slab each
  Communicator::Exchange::Runs own_;    ///< this rank's tokens, to or from every rank
};

}  // namespace

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<PulledWindows>(rank, problem, memory);
}

}  // namespace moecl
