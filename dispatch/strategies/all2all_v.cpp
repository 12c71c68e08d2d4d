// All2AllV: exactly the rows that each rank needs. The sizes depend on the routing, so the host reads them once.
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
  All2AllV(const ExpertRank& rank, const ExpertProblem& problem) : rank_(rank), problem_(problem) {}
  /// Nothing reads or writes the host's lists any more, also where an error ended a step.
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

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    agree_on_tokens(StrategyKind::all2all_v, rank_, problem_, tokens);
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    const std::int64_t slots = share_.count * problem_.top_k;
    tokens_ = tokens;

    WorkspaceLayout layout;
    const SortLayout own(layout, slots, rank_.experts, stream.device->caps);
    const TensorView ends = layout.add(DType::i32, {rank_.ep.size(), rank_.experts});
    row_ = WireRow::to_experts(problem_, tokens);
    const WireRows::Layout permuted(layout, row_, slots, problem_.hidden);
    const BufferView memory = send_memory_.reserve(*stream.context, layout.total_bytes());
    rows_ = permuted.in(memory);
    rank_ends_ = tensor_in(memory, ends);
    sort_ = own.in(memory, tokens.ids.rows(share_.begin, share_.count), 0, rank_.experts, tokens.fault);
    return sort_;
  }

  void begin_dispatch() override {
    // Slots without an expert stand past the last row end.
    pack_rows(rank_.ep.rank_stream(), rows_of(tokens_, share_), sort_.sorted_slots, problem_.top_k, sort_.row_ends,
              rows_);
    rank_.ep.fork();
    rank_.ep.all_gather(sort_.row_ends.buffer, rank_ends_.buffer);
    all_ends_.resize(static_cast<std::size_t>(rank_.ep.size()) * static_cast<std::size_t>(rank_.experts));
    const StreamView beside = rank_.ep.stream();
    enqueue_read(beside, rank_ends_.buffer, all_ends_.data(), rank_ends_.size_bytes(), {{}, &ends_read_});
    beside.flush();
  }

  /// The one host read: how many rows each rank has for each. Then they can travel.
  void hook() override {
    const StreamView stream = rank_.ep.stream();
    ++stream.context->counters().host_syncs;
    rank_.ep.wait(ends_read_);
    plan_exchange();
    WorkspaceLayout layout;
    const WireRows::Layout window(layout, row_, received_, problem_.hidden);
    blocks_ = layout.add(DType::i32, {static_cast<std::int64_t>(block_ends_.size())});
    groups_ = layout.add(DType::i32, {received_, 1});
    by_expert_.emplace(layout, received_, std::max(rank_.local_experts, 1), stream.device->caps,
                       problem_.rows_per_expert(received_));
    batched_.emplace(layout, row_, *by_expert_, problem_.hidden);
    into_ = receive_memory_.reserve(*stream.context, layout.total_bytes());
    window_ = window.in(into_);
    exchange(rows_, sends_, window_, receives_);
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    rank_.ep.join();
    // Rows came by source rank, then expert: by expert, then source rank is one more stable sort.
    const std::int32_t experts = by_expert_->experts;
    const TensorView ends_of_blocks = tensor_in(into_, blocks_);
    enqueue_write(stream, ends_of_blocks.buffer, block_ends_.data(), ends_of_blocks.size_bytes(),
                  {{}, &block_ends_written_});
    const TensorView expert_of_row = tensor_in(into_, groups_);
    index_vectors::enqueue(
        stream,
        index_vectors::GroupOfRow{ends_of_blocks, experts, TensorView(expert_of_row.buffer, DType::i32, {received_})});
    const expert_sort::Args in_order = by_expert_->in(into_, expert_of_row, 0, experts, {});
    expert_sort::enqueue(stream, in_order);
    received_rows_ = in_order.slot_rows;
    return rows_in_order(stream, window_, in_order, 1, *batched_, into_);
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int64_t slots = share_.count * problem_.top_k;
    WorkspaceLayout layout;
    const TensorView back = layout.add(DType::f32, {received_, problem_.hidden}),
                     home = layout.add(DType::f32, {slots, problem_.hidden}),
                     share = layout.add(DType::f32, {share_.count, problem_.hidden});
    const BufferView memory = combine_memory_.reserve(*stream.context, layout.total_bytes());
    const TensorView send = tensor_in(memory, back);
    came_home_ = {tensor_in(memory, home), {}};
    share_out_ = tensor_in(memory, share);
    sums_ = sums;
    gather_rows::enqueue(stream, {expert_rows, received_rows_, 1, {}, 0, send});
    rank_.ep.fork();
    exchange({send, {}}, receives_, came_home_, sends_);
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return combine_home(rank_, came_home_, sort_.slot_rows, weights_of(tokens_, share_), share_out_, sums_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return send_memory_.capacity_bytes() + receive_memory_.capacity_bytes() + combine_memory_.capacity_bytes();
  }

 private:
  /// Runs of rows, one for each rank.
  struct Runs {
    std::vector<std::int64_t> first, rows;
  };

  void plan_exchange() {
    const std::int32_t ranks = rank_.ep.size();
    const auto rows_before = [&](std::int32_t source, std::int32_t expert) -> std::int64_t {
      return expert == 0 ? 0 : all_ends_[static_cast<std::size_t>(source * rank_.experts + expert - 1)];
    };
    sends_ = receives_ = {};
    block_ends_.clear();
    received_ = 0;
    for (std::int32_t r = 0; r < ranks; ++r) {
      const Share theirs = share_of(rank_.experts, ranks, r);
      const auto first = static_cast<std::int32_t>(theirs.begin),
                 end = static_cast<std::int32_t>(theirs.begin + theirs.count);
      const std::int64_t mine = rows_before(rank_.ep.rank(), first);
      sends_.rows.push_back(rows_before(rank_.ep.rank(), end) - mine);
      sends_.first.push_back(mine);
      receives_.first.push_back(received_);
      const std::int32_t begin = rank_.first_expert;
      for (std::int32_t e = 0; e < rank_.local_experts; ++e)
        block_ends_.push_back(
            static_cast<std::int32_t>(received_ + rows_before(r, begin + e + 1) - rows_before(r, begin)));
      receives_.rows.push_back(rows_before(r, begin + rank_.local_experts) - rows_before(r, begin));
      received_ += receives_.rows.back();
    }
    if (block_ends_.empty()) block_ends_.assign(static_cast<std::size_t>(ranks), 0);  // a rank without experts
  }

  static Communicator::Blocks blocks_of(const Runs& runs, const TensorView& rows) {
    Communicator::Blocks blocks;
    for (std::size_t r = 0; r < runs.rows.size(); ++r) {
      blocks.offsets.push_back(bytes_of(rows, runs.first[r]));
      blocks.bytes.push_back(bytes_of(rows, runs.rows[r]));
    }
    return blocks;
  }
  void exchange(const WireRows& from, const Runs& sends, const WireRows& to, const Runs& receives) {
    WireRows::each(from, to, [&](const TensorView& send, const TensorView& recv) {
      rank_.ep.all_to_all_v(send.buffer.slice(0, send.size_bytes()), blocks_of(sends, send),
                            recv.buffer.slice(0, recv.size_bytes()), blocks_of(receives, recv));
    });
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  Workspace send_memory_, receive_memory_, combine_memory_;
  Share share_{};
  Runs sends_, receives_;
  std::vector<std::int32_t> all_ends_;    ///< [ranks, experts]
  std::vector<std::int32_t> block_ends_;  ///< lives until the device has read it: the next dispatch waits for more
  std::int64_t received_ = 0;
  // Between the steps.
  Event ends_read_, block_ends_written_;
  BufferView into_;
  TensorView blocks_, groups_;
  TokensIn tokens_;
  expert_sort::Args sort_;
  std::optional<SortLayout> by_expert_;
  std::optional<BatchedLayout> batched_;
  WireRow row_;
  WireRows rows_, window_, came_home_;
  TensorView rank_ends_, received_rows_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<All2AllV>(rank, problem);
}

}  // namespace moecl
