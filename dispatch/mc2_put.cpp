// MC2's windows as memory that the kernels of all ranks store into: rows, row ends and signals of a step in one kernel.
#include <moecl/context.hpp>

#include <optional>

#include "dispatch/mc2_windows.hpp"
#include "dispatch/put_window.hpp"

namespace moecl {
namespace {

/// What stands where in a half, after the signals.
struct HalfLayout {
  WorkspaceLayout layout;
  std::uint64_t signals, ends;
  WireRows::Layout rows;

  HalfLayout(std::int32_t ranks, std::int32_t experts, const WireRow& row, std::int64_t row_count, std::int64_t hidden)
      : signals(layout.add(PutWindow::begin(ranks))),
        ends(layout.add(bytes_of(DType::i32, ranks, experts))),
        rows(layout, row, row_count, hidden) {}

  window_put::Windows tell(window_put::Windows to, std::int64_t capacity) const {
    to.capacity = capacity;
    to.codes_at = rows.codes_at;
    to.scale_at = rows.scale_at;
    return to;
  }
};

class PutWindows final : public Mc2Windows {
 public:
  PutWindows(const ExpertRank& rank, const ExpertProblem& problem) : rank_(rank), problem_(problem) {}

  Mc2Received dispatch(const Mc2Tokens& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const WireRow& row = tokens.row;
    capacity_ = tokens.capacity;
    const HalfLayout half = half_of(row);
    WorkspaceLayout layout;
    const WireRows::Layout place(layout, row, row.scale ? tokens.x.codes.shape[0] : 0, problem_.hidden);
    const WireRows x = packed(stream, tokens.x, place, codes_.reserve(*stream.context, layout.total_bytes()));
    rank_.ep.fork();
    PutWindow& window = begin_step(dispatch_window_, half);
    window_put::Dispatch put;
    put.row_ends = tokens.sorted.row_ends;
    put.sorted_slots = tokens.sorted.sorted_slots;
    put.divisor = problem_.top_k;
    put.codes = x.codes;
    put.scale = x.scale;
    put.ends_at = half.ends;
    put.to = half.tell(window.windows(), capacity_);
    window_put::enqueue(rank_.ep.stream(), put);
    const WireRows received = half.rows.in(window.memory());
    const TensorView ends = tensor_at(window.memory(), half.ends, DType::i32, rank_.ep.size(), rank_.experts);
    window.arrive(slab_bytes(received) + bytes_of(ends, 1), tokens.fault);
    return {received, ends};
  }

  WireRows combine(TensorView rows, const SortedSlots& in_order) override {
    const StreamView stream = rank_.ep.rank_stream();
    const WireRow row = WireRow::to_home(problem_, DType::f32);
    const HalfLayout half = half_of(row);
    WorkspaceLayout layout;
    const WireRows::Layout place(layout, row, row.scale ? rows.shape[0] : 0, problem_.hidden);
    const BufferView memory = home_codes_.reserve(*stream.context, layout.total_bytes());
    WireRows leaving{rows, {}};
    if (row.scale) {
      leaving = place.in(memory);
      pack_rows(stream, {rows, {}}, {}, 1, in_order.row_ends, leaving);
    }
    rank_.ep.fork();
    PutWindow& window = begin_step(combine_window_, half);
    window_put::Combine put;
    put.row_ends = in_order.row_ends;
    put.sorted_slots = in_order.sorted_slots;
    put.codes = leaving.codes;
    put.scale = leaving.scale;
    put.to = half.tell(window.windows(), capacity_);
    window_put::enqueue(rank_.ep.stream(), put);
    const WireRows received = half.rows.in(window.memory());
    window.arrive(slab_bytes(received), {});
    return received;
  }

  std::uint64_t workspace_bytes() const noexcept override {
    std::uint64_t bytes = codes_.capacity_bytes() + home_codes_.capacity_bytes();
    for (const auto* window : {&dispatch_window_, &combine_window_})
      if (*window) bytes += 2 * (*window)->half_bytes();
    return bytes;
  }

 private:
  HalfLayout half_of(const WireRow& row) const {
    return {rank_.ep.size(), rank_.experts, row, rank_.ep.size() * capacity_, problem_.hidden};
  }
  std::uint64_t slab_bytes(const WireRows& window) const {
    return bytes_of(window.codes, capacity_) + (window.scale.present() ? bytes_of(window.scale, capacity_) : 0);
  }
  /// All ranks make a larger window in the same step, since they know the same sizes.
  PutWindow& begin_step(std::optional<PutWindow>& window, const HalfLayout& half) {
    const std::uint64_t bytes = half.layout.total_bytes();
    if (!window || window->half_bytes() < bytes) {
      if (window) recorded(rank_.ep.stream())->wait();
      window.reset();
      window.emplace(rank_.ep, bytes);
    }
    window->next();
    return *window;
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  Workspace codes_, home_codes_;
  std::optional<PutWindow> dispatch_window_, combine_window_;
  std::int64_t capacity_ = 0;
};

}  // namespace

bool put_windows_fit(const ExpertRank& rank, const ExpertProblem& problem, const WireRow& row, std::int64_t capacity) {
  const std::uint64_t most = PutWindow::most_bytes(rank.ep);
  for (const WireRow& way : {row, WireRow::to_home(problem, DType::f32)})
    if (HalfLayout(rank.ep.size(), rank.experts, way, rank.ep.size() * capacity, problem.hidden).layout.total_bytes() >
        most)
      return false;
  return true;
}

std::unique_ptr<Mc2Windows> put_windows(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<PutWindows>(rank, problem);
}

}  // namespace moecl
