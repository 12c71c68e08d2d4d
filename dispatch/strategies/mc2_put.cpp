// MC2's windows as memory into which the kernels of all ranks store. One kernel a step stores rows, ids, weights and
// signals.
#include <moecl/context.hpp>

#include <optional>

#include "dispatch/put_window.hpp"
#include "dispatch/strategies/mc2_windows.hpp"

namespace moecl {
namespace {

/// Layout of a half of the window, after the signals. Only dispatch has ids and weights.
struct HalfLayout {
  WorkspaceLayout layout;
  std::uint64_t signals;
  TensorView ids, weights;
  WireRows::Layout rows;

  HalfLayout(const ExpertRank& rank, const WireRow& row, std::int64_t places, std::int64_t hidden,
             std::int32_t top_k = 0, bool weighted = false)
      : signals(layout.add(PutWindow::begin(rank.ep.size()))),
        ids(layout.add(DType::i32, {rank.ep.size() * places, top_k})),
        weights(layout.add(DType::f32, {weighted ? rank.ep.size() * places : 0, top_k})),
        rows(layout, row, rank.ep.size() * places, hidden) {}
};

/// Layouts of a half for dispatch and for combine.
HalfLayout half_there(const ExpertRank& rank, const ExpertProblem& problem, const Mc2Tokens& tokens) {
  return {rank, tokens.row, tokens.capacity, problem.hidden, problem.top_k, tokens.weighted};
}
HalfLayout half_home(const ExpertRank& rank, const ExpertProblem& problem, const Mc2Tokens& tokens) {
  return {rank, WireRow::to_home(problem, DType::f32), tokens.capacity * tokens.return_rows_each(), problem.hidden};
}

class PutWindows final : public Mc2Windows {
 public:
  PutWindows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank), problem_(problem), step_memory_(memory) {}

  Mc2Received dispatch(const Mc2Tokens& tokens) override {
    const HalfLayout half = half_there(rank_, problem_, tokens);
    const Step step = begin_step(there_, half, tokens, tokens.x, {});
    window_put::Dispatch put;
    put.ids = tokens.ids;
    put.weights = tokens.weights;
    put.codes = step.leaving.codes;
    put.scale = step.leaving.scale;
    put.first_expert = rank_.ep_first_expert;
    put.experts = rank_.experts;
    put.sums = tokens.sums;
    put.return_rows = tokens.return_rows;
    put.ids_at = half.ids.buffer.offset_bytes;
    put.weights_at = half.weights.buffer.offset_bytes;
    put.to = step.to;
    put.to.fault = tokens.fault;
    window_put::enqueue(rank_.ep.stream(), put);
    Mc2Received received{half.rows.in(step.memory), tensor_in(step.memory, half.ids), {}};
    std::uint64_t token_bytes = row_bytes(received.rows) + bytes_of(received.ids, 1);
    if (tokens.weighted) {
      received.weights = tensor_in(step.memory, half.weights);
      token_bytes += bytes_of(received.weights, 1);
    }
    there_->arrive([&](std::int32_t peer) {
      return static_cast<std::uint64_t>(tokens.each[static_cast<std::size_t>(peer)]) * token_bytes;
    });
    return received;
  }

  WireRows combine(const Mc2Tokens& tokens, const Mc2Received& received, TensorView rows,
                   const expert_sort::Args& in_order) override {
    const HalfLayout half = half_home(rank_, problem_, tokens);
    const bool sums = problem_.experts_sum();
    const Step step = begin_step(home_, half, tokens, {rows, {}}, sums ? TensorView() : in_order.row_ends);
    if (tokens.sums && !sums) {
      window_put::enqueue(rank_.ep.stream(), window_put::Sum{in_order.slot_rows, received.weights, problem_.top_k,
                                                             step.leaving.codes, step.to});
    } else {
      window_put::enqueue(rank_.ep.stream(), window_put::Combine{in_order.slot_rows, problem_.top_k, step.leaving.codes,
                                                                 step.leaving.scale, step.to, sums});
    }
    const WireRows came = half.rows.in(step.memory);
    const auto own = static_cast<std::uint64_t>(tokens.ids.shape[0] * tokens.return_rows_each());
    home_->arrive([&](std::int32_t /*peer*/) { return own * row_bytes(came); });
    return came;
  }

  StepBytes bytes(const Mc2Tokens& tokens, std::int64_t rows) const override {
    const HalfLayout there = half_there(rank_, problem_, tokens), home = half_home(rank_, problem_, tokens);
    StepBytes bytes;
    bytes.workspace = LeavingLayout(there.rows.row, tokens.ids.shape[0], problem_.hidden).workspace.total_bytes() +
                      LeavingLayout(home.rows.row, rows, problem_.hidden).workspace.total_bytes();
    bytes.windows = 2 * (there.layout.total_bytes() + home.layout.total_bytes());
    return bytes;
  }
  std::uint64_t workspace_bytes() const noexcept override {
    std::uint64_t bytes = 0;
    for (const std::optional<PutWindow>* window : {&there_, &home_})
      if (*window) bytes += 2 * (*window)->half_bytes();
    return bytes;
  }

 private:
  /// Memory for rows that are quantized before they travel.
  struct LeavingLayout {
    WorkspaceLayout workspace;
    WireRows::Layout codes;

    LeavingLayout(const WireRow& row, std::int64_t rows, std::int64_t hidden)
        : codes(workspace, row, row.scale ? rows : 0, hidden) {}
  };

  static std::uint64_t row_bytes(const WireRows& rows) {
    return bytes_of(rows.codes, 1) + (rows.scale.present() ? bytes_of(rows.scale, 1) : 0);
  }

  struct Step {
    WireRows leaving;  ///< rows in the format in which they travel
    window_put::Windows to;
    BufferView memory;  ///< this rank's half of the window
  };

  /// The common begin of dispatch and combine. All ranks enlarge a window in the same step, since they know the same
  /// sizes.
  /// @param row_ends  optional: rows past the last end do not travel
  Step begin_step(std::optional<PutWindow>& window, const HalfLayout& half, const Mc2Tokens& tokens,
                  const WireRows& rows, TensorView row_ends) {
    const StreamView stream = rank_.ep.rank_stream();
    const LeavingLayout layout(half.rows.row, rows.codes.shape[0], problem_.hidden);
    Step step;
    step.leaving = packed(stream, rows, layout.codes,
                          step_memory_.take(*stream.context, layout.workspace.total_bytes()), row_ends);
    rank_.ep.fork();
    const std::uint64_t bytes = half.layout.total_bytes();
    if (!window || window->half_bytes() < bytes) {
      if (window) rank_.ep.wait(*recorded(rank_.ep.stream()));
      window.reset();
      window.emplace(rank_.ep, bytes);
    }
    window->next();
    step.to = window->windows();
    step.to.capacity = tokens.capacity;
    step.to.codes_at = half.rows.codes.buffer.offset_bytes;
    step.to.scale_at = half.rows.scale.buffer.offset_bytes;
    step.memory = window->memory();
    return step;
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  StepMemory& step_memory_;
  std::optional<PutWindow> there_, home_;
};

}  // namespace

bool put_windows_fit(const ExpertRank& rank, const ExpertProblem& problem, const Mc2Tokens& tokens) {
  const std::uint64_t most = PutWindow::max_bytes(rank.ep);
  return half_there(rank, problem, tokens).layout.total_bytes() <= most &&
         half_home(rank, problem, tokens).layout.total_bytes() <= most;
}

std::unique_ptr<Mc2Windows> put_windows(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<PutWindows>(rank, problem, memory);
}

}  // namespace moecl
