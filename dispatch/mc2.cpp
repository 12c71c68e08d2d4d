// MC2: windows of fixed capacity. Every rank sends every rank a slab of as many rows as it could need at most, so sizes
// are known before any token is routed, and the counts stay on the devices.
#include <moecl/context.hpp>
#include <moecl/window_slots.hpp>

#include <algorithm>
#include <optional>

#include "dispatch/strategy_parts.hpp"

namespace moecl {
namespace {

class Mc2 final : public Strategy {
 public:
  Mc2(const ExpertRank& rank, const ExpertProblem& problem) : rank_(rank), problem_(problem) {}

  void begin_dispatch(const TokensIn& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::vector<std::int64_t> counts = agree_on_tokens(rank_, problem_, tokens);
    const std::int32_t ranks = rank_.ep.size(), top_k = problem_.top_k;
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    // No token has more rows for a rank than the rank has experts.
    const std::int64_t rows_each = std::min<std::int64_t>(top_k, share_of(rank_.experts, ranks, 0).count);
    capacity_ = share_of(most, rank_.tp.size(), 0).count * rows_each;
    const std::int64_t slots = share_.count * top_k, rows = ranks * capacity_;
    const DeviceCaps& caps = stream.device->caps;

    WorkspaceLayout layout;
    const SortedSlots::Layout own(layout, slots, rank_.experts, caps);
    received_.emplace(layout, rows, std::max(rank_.local_experts, 1), caps);
    const std::uint64_t outgoing = layout.add(bytes_of(DType::i32, rows)),
                        ends = layout.add(bytes_of(DType::i32, ranks, rank_.experts)),
                        incoming = layout.add(bytes_of(DType::i32, rows)),
                        home = layout.add(bytes_of(DType::i32, slots));
    const WireRow row = WireRow::to_experts(problem_, tokens);
    const WireRows::Layout sent(layout, row, rows, problem_.hidden), window(layout, row, rows, problem_.hidden);
    const BufferView memory = memory_ = dispatch_memory_.reserve(*stream.context, layout.total_bytes());

    const TensorView ids = tokens.ids.rows(share_.begin, share_.count);
    weights_ = weights_of(tokens, share_);
    const SortedSlots sorted = SortedSlots::sort(stream, own, memory, ids, rank_.ep_first_expert,
                                                 rank_.ep_first_expert + rank_.experts, tokens.fault);
    const TensorView to_send = tensor_at(memory, outgoing, DType::i32, rows);
    window_slots::enqueue(stream, window_slots::Outgoing{sorted.row_ends, sorted.sorted_slots, ranks, to_send});
    const WireRows send = sent.in(memory);
    window_ = window.in(memory);
    pack_rows(stream, rows_of(tokens, share_), to_send, top_k, {}, send);
    home_ = tensor_at(memory, home, DType::i32, slots);
    window_slots::enqueue(stream, window_slots::Home{sorted.row_ends, sorted.slot_rows, ranks, capacity_, home_});

    all_ends_ = tensor_at(memory, ends, DType::i32, ranks, rank_.experts);
    local_ids_ = tensor_at(memory, incoming, DType::i32, rows, 1);
    rank_.ep.fork();
    rank_.ep.all_gather(sorted.row_ends.buffer, all_ends_.buffer);
    exchange_slabs(send, window_);
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    rank_.ep.join();
    window_slots::enqueue(stream, window_slots::Incoming{all_ends_, rank_.ep.rank(), local_ids_});
    const SortedSlots in_order =
        SortedSlots::sort(stream, *received_, memory_, local_ids_, 0, received_->experts, TensorView());
    window_rows_ = in_order.slot_rows;
    RoutedRows routed;
    routed.x = window_.codes;
    routed.x_scale = window_.scale;
    routed.x_group = window_.group;
    routed.index = in_order.sorted_slots;
    routed.row_ends = in_order.row_ends;
    routed.rows = window_.codes.shape[0];
    return routed;
  }

  void begin_combine(TensorView expert_rows, TensorView out) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int64_t rows = rank_.ep.size() * capacity_;
    WorkspaceLayout layout;
    const WireRow row = WireRow::to_home(problem_, DType::f32);
    const WireRows::Layout sent(layout, row, rows, problem_.hidden), window(layout, row, rows, problem_.hidden);
    const std::uint64_t share = layout.add(bytes_of(DType::f32, share_.count, problem_.hidden));
    const BufferView memory = combine_memory_.reserve(*stream.context, layout.total_bytes());
    const WireRows send = sent.in(memory);
    came_home_ = window.in(memory);
    share_out_ = tensor_at(memory, share, DType::f32, share_.count, problem_.hidden);
    out_ = out;
    // Back to where each row stood in the window.
    pack_rows(stream, {expert_rows, {}}, window_rows_, 1, {}, send);
    rank_.ep.fork();
    exchange_slabs(send, came_home_);
  }

  void finish_combine() override {
    rank_.ep.join();
    combine_home(rank_, came_home_, home_, weights_, share_out_, out_);
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
  Share share_{};
  std::int64_t capacity_ = 0;
  // Between the steps.
  BufferView memory_;
  std::optional<SortedSlots::Layout> received_;
  WireRows window_, came_home_;
  TensorView weights_, home_, all_ends_, local_ids_, window_rows_, share_out_, out_;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<Mc2>(rank, problem);
}

}  // namespace moecl
