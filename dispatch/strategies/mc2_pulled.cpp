// MC2's windows as slabs that every rank pulls: all tokens of the others, and what they have for its own.
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
    WireRows::each(mine, received.rows, [&](const auto& from, const auto& to) { to_everybody(tokens, from, to); });
    to_everybody(tokens, tokens.ids, received.ids);
    if (tokens.weighted) {
      received.weights = tensor_in(memory, layout.weights);
      to_everybody(tokens, tokens.weights, received.weights);
    }
    return received;
  }

  WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                   const expert_sort::Args& in_order) override {
    const StreamView stream = rank_.ep.rank_stream();
    const CombineLayout layout(*this, tokens);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    const WireRows leaving = layout.own.in(memory), home = layout.window.in(memory);
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

  StepBytes bytes(const Mc2Tokens& tokens, std::int64_t /*rows*/) const override {
    StepBytes bytes;
    bytes.workspace =
        DispatchLayout(*this, tokens).workspace.total_bytes() + CombineLayout(*this, tokens).workspace.total_bytes();
    return bytes;
  }
  std::uint64_t workspace_bytes() const noexcept override { return 0; }

 private:
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
  struct CombineLayout {
    WorkspaceLayout workspace;
    WireRows::Layout own, window;

    CombineLayout(const PulledWindows& of, const Mc2Tokens& tokens)
        : CombineLayout(of, WireRow::to_home(of.problem_, DType::f32),
                        of.rank_.ep.size() * tokens.capacity * tokens.return_rows_each()) {}
    CombineLayout(const PulledWindows& of, const WireRow& row, std::int64_t places)
        : own(workspace, row, places, of.problem_.hidden), window(workspace, row, places, of.problem_.hidden) {}
  };

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
  StepMemory& step_memory_;
};

}  // namespace

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<PulledWindows>(rank, problem, memory);
}

}  // namespace moecl
