// MC2: windows of fixed capacity. Every rank has a slab in the window of every rank, of as many tokens as it has, so
// sizes are known before any token is routed, and the counts stay on the devices. A token goes to a rank once; back
// come the rows of that rank's experts, or their weighted sum.
#include <moecl/context.hpp>

#include <algorithm>
#include <optional>

#include "dispatch/put_window.hpp"
#include "dispatch/strategies/mc2_windows.hpp"

namespace moecl {
namespace {

class Mc2 final : public Strategy {
 public:
  Mc2(const ExpertRank& rank, const ExpertProblem& problem)
      : rank_(rank),
        problem_(problem),
        pulled_(pulled_windows(rank, problem)),
        put_(PutWindow::reject(rank.ep).empty() ? put_windows(rank, problem) : nullptr) {}

  StepNeeds needs(std::int64_t /*tokens*/) const override {
    StepNeeds needs;
    needs.fills_sums = rank_.tp.size() > 1;
    return needs;
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    const Share share = share_tokens(agree_on_tokens(StrategyKind::mc2, rank_, problem_, tokens), tokens.x.shape[0]);
    const std::int32_t top_k = problem_.top_k;
    const std::int64_t slots = rank_.ep.size() * mine_.capacity * top_k;

    mine_.row = WireRow::to_experts(problem_, tokens);
    WorkspaceLayout layout;
    received_order_.emplace(layout, slots, std::max(rank_.local_experts, 1), stream.device->caps,
                            problem_.rows_per_expert(rank_.ep.size() * mine_.capacity));
    batched_.emplace(layout, mine_.row, *received_order_, problem_.hidden);
    const TensorView return_rows = layout.add(DType::i32, {share.count * top_k});
    memory_ = workspace_.reserve(*stream.context, layout.total_bytes());

    mine_.x = rows_of(tokens, share);
    mine_.ids = tokens.ids.rows(share.begin, share.count);
    mine_.sums = combine_form(StrategyKind::mc2, problem_.dtype, problem_.wire) == CombineForm::partial_sums;
    const TensorView weights = weights_of(tokens, share);
    mine_.weights = mine_.sums ? weights : TensorView();
    home_weights_ = mine_.sums ? TensorView() : weights;
    mine_.return_rows = tensor_in(memory_, return_rows);
    mine_.fault = tokens.fault;
    choose_windows();
    return std::nullopt;
  }

  void begin_dispatch() override { received_ = windows_->dispatch(mine_); }

  RoutedRows receive() override {
    rank_.ep.join();
    // A rank without experts sorts by one that nobody chose.
    const std::int32_t end = rank_.ep_first_expert + rank_.experts;
    const std::int32_t first = rank_.local_experts > 0 ? rank_.first_expert : end;
    const StreamView stream = rank_.ep.rank_stream();
    in_order_ = received_order_->in(memory_, received_.ids, first, std::max(end, first + received_order_->experts), {});
    expert_sort::enqueue(stream, in_order_);
    return rows_in_order(stream, received_.rows, in_order_, problem_.top_k, *batched_, memory_);
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const std::int64_t share = rank_.tp.size() > 1 ? mine_.ids.shape[0] : 0;
    share_out_ =
        TensorView(share_memory_.reserve(*rank_.ep.rank_stream().context, bytes_of(DType::f32, share, problem_.hidden)),
                   DType::f32, {share, problem_.hidden});
    sums_ = sums;
    came_home_ = windows_->combine(mine_, received_, expert_rows, in_order_);
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return combine_home(rank_, came_home_, mine_.return_rows, home_weights_, share_out_, sums_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return workspace_.capacity_bytes() + share_memory_.capacity_bytes() + pulled_->workspace_bytes() +
           (put_ != nullptr ? put_->workspace_bytes() : 0);
  }

 private:
  /// Of everybody's tokens, divided within each tp group. Returns the share of this rank.
  Share share_tokens(const std::vector<std::int64_t>& counts, std::int64_t own) {
    const std::int32_t tp = rank_.tp.size();
    mine_.each.clear();
    for (std::int32_t r = 0; r < rank_.ep.size(); ++r)
      mine_.each.push_back(share_of(counts[static_cast<std::size_t>(r)], tp, r % tp).count);
    mine_.capacity = *std::max_element(mine_.each.begin(), mine_.each.end());
    return share_of(own, tp, rank_.tp.rank());
  }

  void choose_windows() {
    windows_ = pulled_.get();
    if (put_ == nullptr || mine_.capacity == 0) return;
    if (put_windows_fit(rank_, problem_, mine_)) {
      windows_ = put_.get();
    } else if (!told_) {
      told_ = true;
      rank_.ep.rank_stream().context->log(
          LogLevel::warning,
          fmt::format("mc2: slabs of {} tokens of each of {} ranks do not fit the {} bytes of a peer window: they are "
                      "pulled",
                      mine_.capacity, rank_.ep.size(), PutWindow::most_bytes(rank_.ep)));
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  std::unique_ptr<Mc2Windows> pulled_, put_;
  Mc2Windows* windows_ = nullptr;  ///< of this step
  Workspace workspace_, share_memory_;
  bool told_ = false;
  // Between the steps.
  BufferView memory_;
  std::optional<SortLayout> received_order_;
  std::optional<BatchedLayout> batched_;
  Mc2Tokens mine_;
  Mc2Received received_;
  expert_sort::Args in_order_;
  WireRows came_home_;
  TensorView home_weights_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<Mc2>(rank, problem);
}

}  // namespace moecl
