// MC2: windows of fixed capacity. Every rank has a slab in the window of every rank, of as many rows as it could need
// at most, so sizes are known before any token is routed, and the counts stay on the devices.
#include <moecl/context.hpp>
#include <moecl/window_slots.hpp>

#include <algorithm>
#include <optional>

#include "dispatch/mc2_windows.hpp"
#include "dispatch/put_window.hpp"

namespace moecl {
namespace {

class Mc2 final : public Strategy {
 public:
  Mc2(const ExpertRank& rank, const ExpertProblem& problem)
      : rank_(rank),
        problem_(problem),
        pulled_(pulled_windows(rank, problem)),
        put_(PutWindow::reject(rank.ep).empty() ? put_windows(rank, problem) : nullptr) {}

  void begin_dispatch(const TokensIn& tokens) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::vector<std::int64_t> counts = agree_on_tokens(rank_, problem_, tokens);
    const std::int32_t ranks = rank_.ep.size(), top_k = problem_.top_k;
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    // No token has more rows for a rank than the rank has experts.
    const std::int64_t rows_each = std::min<std::int64_t>(top_k, share_of(rank_.experts, ranks, 0).count);
    const std::int64_t capacity = share_of(most, rank_.tp.size(), 0).count * rows_each;
    const std::int64_t slots = share_.count * top_k, rows = ranks * capacity;
    const DeviceCaps& caps = stream.device->caps;

    WorkspaceLayout layout;
    const SortedSlots::Layout own(layout, slots, rank_.experts, caps);
    received_order_.emplace(layout, rows, std::max(rank_.local_experts, 1), caps);
    const std::uint64_t incoming = layout.add(bytes_of(DType::i32, rows)),
                        home = layout.add(bytes_of(DType::i32, slots));
    memory_ = workspace_.reserve(*stream.context, layout.total_bytes());

    const TensorView ids = tokens.ids.rows(share_.begin, share_.count);
    weights_ = weights_of(tokens, share_);
    Mc2Tokens mine{rows_of(tokens, share_), WireRow::to_experts(problem_, tokens), {}, capacity, tokens.fault};
    mine.sorted = SortedSlots::sort(stream, own, memory_, ids, rank_.ep_first_expert,
                                    rank_.ep_first_expert + rank_.experts, tokens.fault);
    home_ = tensor_at(memory_, home, DType::i32, slots);
    window_slots::enqueue(stream,
                          window_slots::Home{mine.sorted.row_ends, mine.sorted.slot_rows, ranks, capacity, home_});
    local_ids_ = tensor_at(memory_, incoming, DType::i32, rows, 1);
    choose_windows(mine.row, capacity);
    received_ = windows_->dispatch(mine);
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    rank_.ep.join();
    window_slots::enqueue(stream, window_slots::Incoming{received_.ends, rank_.ep.rank(), local_ids_});
    in_order_ =
        SortedSlots::sort(stream, *received_order_, memory_, local_ids_, 0, received_order_->experts, TensorView());
    RoutedRows routed;
    routed.x = received_.rows.codes;
    routed.x_scale = received_.rows.scale;
    routed.x_group = received_.rows.group;
    routed.index = in_order_.sorted_slots;
    routed.row_ends = in_order_.row_ends;
    routed.rows = received_.rows.codes.shape[0];
    return routed;
  }

  void begin_combine(TensorView expert_rows, TensorView out) override {
    share_out_ = TensorView(
        share_memory_.reserve(*rank_.ep.rank_stream().context, bytes_of(DType::f32, share_.count, problem_.hidden)),
        DType::f32, {share_.count, problem_.hidden});
    out_ = out;
    came_home_ = windows_->combine(expert_rows, in_order_);
  }

  void finish_combine() override {
    rank_.ep.join();
    combine_home(rank_, came_home_, home_, weights_, share_out_, out_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return workspace_.capacity_bytes() + share_memory_.capacity_bytes() + pulled_->workspace_bytes() +
           (put_ != nullptr ? put_->workspace_bytes() : 0);
  }

 private:
  void choose_windows(const WireRow& row, std::int64_t capacity) {
    windows_ = pulled_.get();
    if (put_ == nullptr || capacity == 0) return;
    if (put_windows_fit(rank_, problem_, row, capacity)) {
      windows_ = put_.get();
    } else if (!told_) {
      told_ = true;
      rank_.ep.rank_stream().context->log(
          LogLevel::warning,
          fmt::format("mc2: slabs of {} rows do not fit the {} bytes of a peer window: they are pulled", capacity,
                      PutWindow::most_bytes(rank_.ep)));
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  std::unique_ptr<Mc2Windows> pulled_, put_;
  Mc2Windows* windows_ = nullptr;  ///< of this step
  Workspace workspace_, share_memory_;
  bool told_ = false;
  Share share_{};
  // Between the steps.
  BufferView memory_;
  std::optional<SortedSlots::Layout> received_order_;
  Mc2Received received_;
  SortedSlots in_order_;
  WireRows came_home_;
  TensorView weights_, home_, local_ids_, share_out_, out_;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<Mc2>(rank, problem);
}

}  // namespace moecl
