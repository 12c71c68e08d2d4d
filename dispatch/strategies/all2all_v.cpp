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
  All2AllV(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank), problem_(problem), step_memory_(memory) {}
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

  /// Where every token chose experts of this rank alone.
  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override {
    const std::int64_t own =
        share_of(tokens[static_cast<std::size_t>(rank_.ep.rank())], rank_.tp.size(), rank_.tp.rank()).count;
    std::int64_t received = 0;
    for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(rank_.tp.size()))
      received += tokens[first] * problem_.top_k;
    const WireRow row = WireRow::to_experts(problem_, {});
    const ReceiveLayout receive(*this, row, received);
    return {SendLayout(*this, row, own).workspace.total_bytes() + receive.workspace.total_bytes() +
                CombineLayout(*this, own, received).workspace.total_bytes(),
            0, problem_.batched ? receive.by_expert.rows() : received, receive.by_expert.rows()};
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    agree_on_tokens(StrategyKind::all2all_v, rank_, problem_, tokens);
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    tokens_ = tokens;
    row_ = WireRow::to_experts(problem_, tokens);
    const SendLayout layout(*this, row_, share_.count);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    rows_ = layout.permuted.in(memory);
    rank_ends_ = tensor_in(memory, layout.ends);
    sort_ = layout.own.in(memory, tokens.ids.rows(share_.begin, share_.count), 0, rank_.experts, tokens.fault);
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
    received_layout_.emplace(*this, row_, received_);
    into_ = step_memory_.take(*stream.context, received_layout_->workspace.total_bytes());
    window_ = received_layout_->window.in(into_);
    exchange(rows_, sends_, window_, receives_);
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    rank_.ep.join();
    // Rows came by source rank, then expert: by expert, then source rank is one more stable sort.
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
    return rows_in_order(stream, window_, in_order, 1, received_layout_->batched, into_);
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const StreamView stream = rank_.ep.rank_stream();
    const CombineLayout layout(*this, share_.count, received_);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    const TensorView send = tensor_in(memory, layout.back);
    came_home_ = {tensor_in(memory, layout.home), {}};
    share_out_ = tensor_in(memory, layout.share);
    sums_ = sums;
    gather_rows::enqueue(stream, {expert_rows, received_rows_, 1, {}, 0, send});
    rank_.ep.fork();
    exchange({send, {}}, receives_, came_home_, sends_);
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return combine_home(rank_, came_home_, sort_.slot_rows, weights_of(tokens_, share_), share_out_, sums_,
                        tokens_.reduce_results);
  }

  std::uint64_t workspace_bytes() const noexcept override { return 0; }

 private:
  struct SendLayout {
    WorkspaceLayout workspace;
    SortLayout own;
    TensorView ends;
    WireRows::Layout permuted;

    SendLayout(const All2AllV& of, const WireRow& row, std::int64_t share)
        : own(workspace, share * of.problem_.top_k, of.rank_.experts, of.rank_.ep.rank_stream().device->caps),
          ends(workspace.add(DType::i32, {of.rank_.ep.size(), of.rank_.experts})),
          permuted(workspace, row, share * of.problem_.top_k, of.problem_.hidden) {}
  };
  struct ReceiveLayout {
    WorkspaceLayout workspace;
    WireRows::Layout window;
    TensorView blocks;  ///< ends of each rank's rows for each expert here
    TensorView groups;
    SortLayout by_expert;
    BatchedLayout batched;

    ReceiveLayout(const All2AllV& of, const WireRow& row, std::int64_t received)
        : window(workspace, row, received, of.problem_.hidden),
          blocks(workspace.add(DType::i32, {of.rank_.ep.size() * of.sorted_experts()})),
          groups(workspace.add(DType::i32, {received, 1})),
          by_expert(workspace, received, of.sorted_experts(), of.rank_.ep.rank_stream().device->caps,
                    of.problem_.rows_per_expert(received)),
          batched(workspace, row, by_expert, of.problem_.hidden) {}
  };
  struct CombineLayout {
    WorkspaceLayout workspace;
    TensorView back, home, share;

    CombineLayout(const All2AllV& of, std::int64_t own, std::int64_t received)
        : back(workspace.add(DType::f32, {received, of.problem_.hidden})),
          home(workspace.add(DType::f32, {own * of.problem_.top_k, of.problem_.hidden})),
          share(workspace.add(DType::f32, {own, of.problem_.hidden})) {}
  };
  std::int32_t sorted_experts() const { return std::max(rank_.local_experts, 1); }

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
  StepMemory& step_memory_;
  Share share_{};
  Runs sends_, receives_;
  std::vector<std::int32_t> all_ends_;    ///< [ranks, experts]
  std::vector<std::int32_t> block_ends_;  ///< lives until the device has read it: the next dispatch waits for more
  std::int64_t received_ = 0;
  // Between the steps.
  Event ends_read_, block_ends_written_;
  BufferView into_;
  std::optional<ReceiveLayout> received_layout_;
  TokensIn tokens_;
  expert_sort::Args sort_;
  WireRow row_;
  WireRows rows_, window_, came_home_;
  TensorView rank_ends_, received_rows_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<All2AllV>(rank, problem, memory);
}

}  // namespace moecl
