// All2AllV: each rank gets exactly the rows that it needs. Sizes depend on the routing, so the host reads them once.
#include <moecl/context.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>

#include <numeric>
#include <optional>

#include "dispatch/meeting.hpp"
#include "dispatch/strategies/strategy_parts.hpp"
#include "runtime/bounded_wait.hpp"

namespace moecl {
namespace {

class All2AllV final : public Strategy {
 public:
  All2AllV(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank), problem_(problem), step_memory_(memory) {}
  /// Waits until no command reads or writes the host's lists any more, even if an error ended a step.
  ~All2AllV() override {
    for (const Event* used : {&ends_read_, &block_ends_written_}) try {
        completes_within(*used, GroupFate::grace);
      } catch (const Error&) {
      }
  }

  StepNeeds needs(std::int64_t /*tokens*/) const override {
    StepNeeds needs;
    needs.fills_sums = rank_.tp.size() > 1;
    return needs;
  }

  /// Upper bound: every token chose only experts of this rank.
  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override {
    const std::int64_t own =
        share_of(tokens[static_cast<std::size_t>(rank_.ep.rank())], rank_.tp.size(), rank_.tp.rank()).count;
    std::int64_t received = 0;
    for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(rank_.tp.size()))
      received += tokens[first] * problem_.top_k;
    const WireRow row = WireRow::to_experts(problem_, {});
    const ReceiveLayout receive(*this, row, received);
    return {SendLayout(*this, row, own).workspace.total_bytes() + receive.workspace.total_bytes() +
                HomeLayout(*this, own).workspace.total_bytes(),
            BackLayout(*this, own, received).workspace.total_bytes(),
            problem_.batched ? receive.by_expert.rows() : received, receive.by_expert.rows()};
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    std::vector<std::int64_t> asked;
    agree_on_tokens(StrategyKind::all2all_v, rank_, problem_, tokens, asked);
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    tokens_ = tokens;
    row_ = WireRow::to_experts(problem_, tokens);
    send_layout_.emplace(*this, row_, share_.count);
    from_ = step_memory_.take(*stream.context, send_layout_->workspace.total_bytes());
    rows_ = send_layout_->permuted.in(from_);
    sort_ = send_layout_->own.in(from_, tokens.ids.rows(share_.begin, share_.count), 0, rank_.experts, tokens.fault);
    return sort_;
  }

  void begin_dispatch() override {
    // Slots without an expert come after the last row end, and are left out.
    pack_rows(rank_.ep.rank_stream(), rows_of(tokens_, share_), sort_.sorted_slots, problem_.top_k, sort_.row_ends,
              rows_);
    weights_ = send_layout_->row_weights.in_order(rank_.ep.rank_stream(), weights_of(tokens_, share_), sort_, from_);
    rank_.ep.fork();
    own_ends_.resize(static_cast<std::size_t>(rank_.experts));
    const StreamView beside = rank_.ep.stream();
    enqueue_read(beside, sort_.row_ends.buffer, own_ends_.data(), sort_.row_ends.size_bytes(), {{}, &ends_read_});
    beside.flush();
  }

  /// The only host read: how many rows this rank has for each expert. Ranks exchange these counts; then rows can
  /// travel.
  void hook() override {
    const StreamView stream = rank_.ep.stream();
    ++stream.context->counters().host_syncs;
    rank_.ep.wait(ends_read_);
    using Exchange = Communicator::Exchange;
    Exchange exchange(rank_.ep);
    std::vector<HeldView> shown;
    shown.reserve(3);
    each_sent([&](const TensorView& rows, const TensorView&) { shown.emplace_back(whole(rows)); });
    exchange.run("all_to_all_v", std::move(shown), Shown::until_next, {}, {own_ends_.begin(), own_ends_.end()},
                 [&](const Exchange::Notes& notes) {
                   plan_exchange(notes);
                   received_layout_.emplace(*this, row_, received_);
                   into_ = step_memory_.take(*stream.context, received_layout_->workspace.total_bytes());
                   window_ = received_layout_->window.in(into_);
                   came_weights_ = tensor_in(into_, received_layout_->weights);
                   std::vector<Exchange::Pull> pulls;
                   pulls.reserve(3 * notes.size());
                   std::size_t piece = 0;
                   each_sent([&](const TensorView& from, const TensorView& to) {
                     for (std::int32_t r = 0; r < rank_.ep.size(); ++r) {
                       const auto i = static_cast<std::size_t>(r);
                       pulls.push_back(
                           {r, bytes_of(from, first_for_me_[i]),
                            to.buffer.slice(bytes_of(to, receives_.first[i]), bytes_of(to, receives_.rows[i])), piece});
                     }
                     ++piece;
                   });
                   return pulls;
                 });
    for (std::int32_t r = 0; r < rank_.ep.size(); ++r)
      if (r != rank_.ep.rank()) exchange.count_received(r, own_ends_.size() * sizeof(std::int32_t));
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    rank_.ep.join();
    // Rows came ordered by source rank, then expert. One more stable sort orders them by expert, then source rank.
    const SortLayout& by_expert = received_layout_->by_expert;
    const std::int32_t experts = by_expert.experts;
    const TensorView ends_of_blocks = tensor_in(into_, received_layout_->blocks);
    enqueue_write(stream, ends_of_blocks.buffer, block_ends_.data(), ends_of_blocks.size_bytes(),
                  {{}, &block_ends_written_});
    const TensorView expert_of_row = tensor_in(into_, received_layout_->groups);
    index_vectors::enqueue(
        stream,
        index_vectors::GroupOfRow{ends_of_blocks, experts, TensorView(expert_of_row.buffer, DType::i32, {received_})});
    const expert_sort::Args in_order = by_expert.in(into_, expert_of_row, 0, experts, {});
    expert_sort::enqueue(stream, in_order);
    received_rows_ = in_order.slot_rows;
    RoutedRows rows = rows_in_order(stream, window_, in_order, 1, received_layout_->batched, into_);
    rows.slot_rows = rows_of_tokens(problem_, in_order);
    if (weights_.present())
      rows.weights = received_layout_->row_weights.in_order(stream, came_weights_, in_order, into_);
    return rows;
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const StreamView stream = rank_.ep.rank_stream();
    const HomeLayout layout(*this, share_.count);
    came_home_ = {tensor_in(step_memory_.take(*stream.context, layout.workspace.total_bytes()), layout.home), {}};
    const BackLayout shown(*this, share_.count, received_);
    const BufferView memory = outbox_.take(rank_, shown.workspace);
    const TensorView send = tensor_in(memory, shown.back);
    share_out_ = tensor_in(memory, shown.share);
    sums_ = sums;
    if (problem_.experts_sum())  // the experts return sums of rows in the order received
      enqueue_copy(stream, whole(expert_rows), whole(send));
    else
      gather_rows::enqueue(stream, {expert_rows, received_rows_, 1, {}, 0, send});
    rank_.ep.fork();
    const TensorView& home = came_home_.codes;
    Communicator::Exchange(rank_.ep).all_to_all({piece_of(send, home)}, receives_, sends_, Shown::until_next);
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return combine_home(rank_, came_home_, sort_.slot_rows, weights_of_sum(problem_, weights_of(tokens_, share_)),
                        share_out_, sums_, tokens_.reduce_results);
  }

  std::uint64_t workspace_bytes() const noexcept override { return outbox_.bytes(); }

 private:
  struct SendLayout {
    WorkspaceLayout workspace;
    SortLayout own;
    WireRows::Layout permuted;
    RowWeights row_weights;

    SendLayout(const All2AllV& of, const WireRow& row, std::int64_t share)
        : own(workspace, share * of.problem_.top_k, of.rank_.experts, of.rank_.ep.rank_stream().device->caps),
          permuted(workspace, row, share * of.problem_.top_k, of.problem_.hidden),
          row_weights(workspace, of.problem_, own) {}
  };
  struct ReceiveLayout {
    WorkspaceLayout workspace;
    WireRows::Layout window;
    TensorView weights;  ///< weights of the window's rows, if the experts multiply by them
    TensorView blocks;   ///< end of each source rank's rows for each local expert
    TensorView groups;
    SortLayout by_expert;
    BatchedLayout batched;
    RowWeights row_weights;

    ReceiveLayout(const All2AllV& of, const WireRow& row, std::int64_t received)
        : window(workspace, row, received, of.problem_.hidden),
          weights(workspace.add(DType::f32, {of.problem_.experts_weight() ? received : 0, 1})),
          blocks(workspace.add(DType::i32, {of.rank_.ep.size() * of.sorted_experts()})),
          groups(workspace.add(DType::i32, {received, 1})),
          by_expert(workspace, received, of.sorted_experts(), of.rank_.ep.rank_stream().device->caps,
                    of.problem_.rows_per_expert(received)),
          batched(workspace, row, by_expert, of.problem_.hidden),
          row_weights(workspace, of.problem_, by_expert) {}
  };
  struct BackLayout {
    WorkspaceLayout workspace;
    TensorView back, share;

    BackLayout(const All2AllV& of, std::int64_t own, std::int64_t received)
        : back(workspace.add(DType::f32, {received, of.problem_.hidden})),
          share(workspace.add(DType::f32, {of.rank_.tp.size() > 1 ? own : 0, of.problem_.hidden})) {}
  };
  struct HomeLayout {
    WorkspaceLayout workspace;
    TensorView home;

    HomeLayout(const All2AllV& of, std::int64_t own)
        : home(workspace.add(DType::f32, {own * of.problem_.top_k, of.problem_.hidden})) {}
  };
  std::int32_t sorted_experts() const { return std::max(rank_.local_experts, 1); }

  /// As WireRows::each, for the parts of a row that are sent and where they arrive; includes weights if they travel.
  template <class Move>
  void each_sent(Move move) const {
    WireRows::each(rows_, window_, move);
    if (weights_.present()) move(weights_, came_weights_);
  }

  /// @param notes  their numbers are every rank's row ends
  void plan_exchange(const Communicator::Exchange::Notes& notes) {
    const std::int32_t ranks = rank_.ep.size();
    const auto rows_before = [&](std::int32_t source, std::int32_t expert) {
      const std::vector<std::uint64_t>& ends = notes[static_cast<std::size_t>(source)].numbers;
      return expert == 0 ? std::int64_t{0} : static_cast<std::int64_t>(ends[static_cast<std::size_t>(expert - 1)]);
    };
    sends_.clear(), receives_.clear();
    first_for_me_.clear();
    block_ends_.clear();
    received_ = 0;
    for (std::int32_t r = 0; r < ranks; ++r) {
      const Share theirs = share_of(rank_.experts, ranks, r);
      const auto first = static_cast<std::int32_t>(theirs.begin),
                 end = static_cast<std::int32_t>(theirs.begin + theirs.count);
      const std::int64_t mine = rows_before(rank_.ep.rank(), first);
      sends_.add(mine, rows_before(rank_.ep.rank(), end) - mine);
      const std::int32_t begin = rank_.first_expert;
      first_for_me_.push_back(rows_before(r, begin));
      for (std::int32_t e = 0; e < rank_.local_experts; ++e)
        block_ends_.push_back(
            static_cast<std::int32_t>(received_ + rows_before(r, begin + e + 1) - rows_before(r, begin)));
      receives_.add(received_, rows_before(r, begin + rank_.local_experts) - rows_before(r, begin));
      received_ += receives_.rows.back();
    }
    if (block_ends_.empty()) block_ends_.assign(static_cast<std::size_t>(ranks), 0);  // a rank without experts
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  StepMemory& step_memory_;
  Outbox outbox_;
  Share share_{};
  Communicator::Exchange::Runs sends_, receives_;
  std::vector<std::int64_t> first_for_me_;  ///< first row for this rank in each rank's rows
  std::vector<std::int32_t> own_ends_;      ///< [experts]
  std::vector<std::int32_t> block_ends_;    ///< kept until the device has read it: the next dispatch waits for more
  std::int64_t received_ = 0;
  // State between the calls of a step.
  Event ends_read_, block_ends_written_;
  BufferView from_, into_;
  std::optional<SendLayout> send_layout_;
  std::optional<ReceiveLayout> received_layout_;
  TokensIn tokens_;
  expert_sort::Args sort_;
  WireRow row_;
  WireRows rows_, window_, came_home_;
  TensorView weights_, came_weights_;  ///< weights of rows, sent and received
  TensorView received_rows_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<All2AllV>(rank, problem, memory);
}

}  // namespace moecl
