// MC2's windows as slabs: every rank puts its rows into slabs of equal size, and pulls those of the others for it.
#include <moecl/context.hpp>
#include <moecl/window_slots.hpp>

#include "dispatch/mc2_windows.hpp"

namespace moecl {
namespace {

class PulledWindows final : public Mc2Windows {
 public:
  PulledWindows(const ExpertRank& rank, const ExpertProblem& problem) : rank_(rank), problem_(problem) {}

  Mc2Received dispatch(const Mc2Tokens& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int32_t ranks = rank_.ep.size();
    rows_ = ranks * tokens.capacity;
    WorkspaceLayout layout;
    const std::uint64_t outgoing = layout.add(bytes_of(DType::i32, rows_)),
                        ends = layout.add(bytes_of(DType::i32, ranks, rank_.experts));
    const WireRows::Layout sent(layout, tokens.row, rows_, problem_.hidden),
        window(layout, tokens.row, rows_, problem_.hidden);
    const BufferView memory = dispatch_memory_.reserve(*stream.context, layout.total_bytes());
    const TensorView to_send = tensor_at(memory, outgoing, DType::i32, rows_);
    window_slots::enqueue(stream,
                          window_slots::Outgoing{tokens.sorted.row_ends, tokens.sorted.sorted_slots, ranks, to_send});
    const WireRows send = sent.in(memory), received = window.in(memory);
    pack_rows(stream, tokens.x, to_send, problem_.top_k, {}, send);
    const TensorView all_ends = tensor_at(memory, ends, DType::i32, ranks, rank_.experts);
    rank_.ep.fork();
    rank_.ep.all_gather(tokens.sorted.row_ends.buffer, all_ends.buffer);
    exchange_slabs(send, received);
    return {received, all_ends};
  }

  WireRows combine(TensorView rows, const SortedSlots& in_order) override {
    const StreamView stream = rank_.ep.rank_stream();
    WorkspaceLayout layout;
    const WireRow row = WireRow::to_home(problem_, DType::f32);
    const WireRows::Layout sent(layout, row, rows_, problem_.hidden), window(layout, row, rows_, problem_.hidden);
    const BufferView memory = combine_memory_.reserve(*stream.context, layout.total_bytes());
    const WireRows send = sent.in(memory), received = window.in(memory);
    // Back to where each row stood in the window.
    pack_rows(stream, {rows, {}}, in_order.slot_rows, 1, {}, send);
    rank_.ep.fork();
    exchange_slabs(send, received);
    return received;
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return dispatch_memory_.capacity_bytes() + combine_memory_.capacity_bytes();
  }

 private:
  void exchange_slabs(const WireRows& send, const WireRows& recv) {
    WireRows::each(send, recv, [&](const TensorView& from, const TensorView& to) {
      const std::uint64_t slab = from.size_bytes() / static_cast<std::uint64_t>(rank_.ep.size());
      Communicator::Blocks blocks;
      for (std::int32_t r = 0; r < rank_.ep.size(); ++r) {
        blocks.offsets.push_back(static_cast<std::uint64_t>(r) * slab);
        blocks.bytes.push_back(slab);
      }
      rank_.ep.all_to_all_v(from.buffer.slice(0, from.size_bytes()), blocks, to.buffer.slice(0, to.size_bytes()),
                            blocks);
    });
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  Workspace dispatch_memory_, combine_memory_;
  std::int64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<Mc2Windows> pulled_windows(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<PulledWindows>(rank, problem);
}

}  // namespace moecl
