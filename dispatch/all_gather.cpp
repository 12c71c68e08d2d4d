// AllGather and multicast: every rank sees the tokens of all dp ranks and computes those that chose one of its experts;
// the partial sums are added up.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>

#include <numeric>
#include <optional>

#include "dispatch/strategy_parts.hpp"

namespace moecl {
namespace {

class AllGather final : public Strategy {
 public:
  AllGather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast)
      : rank_(rank), problem_(problem), by_broadcast_(by_broadcast) {}

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const std::vector<std::int64_t> counts =
        agree_on_tokens(by_broadcast_ ? StrategyKind::multicast : StrategyKind::all_gather, rank_, problem_, tokens);
    tokens_.clear();
    for (std::size_t first = 0; first < counts.size(); first += static_cast<std::size_t>(rank_.tp.size()))
      tokens_.push_back(counts[first]);
    total_ = std::accumulate(tokens_.begin(), tokens_.end(), std::int64_t{0});
    brought_ = tokens;
    return std::nullopt;
  }

  void begin_dispatch() override {
    const StreamView stream = rank_.ep.rank_stream();
    const TokensIn& tokens = brought_;
    const std::int32_t top_k = problem_.top_k;
    const std::int64_t slots = total_ * top_k;

    WorkspaceLayout layout;
    const WireRow row = WireRow::to_experts(problem_, tokens);
    const WireRows::Layout own(layout, row, row.scale ? tokens.x.shape[0] : 0, problem_.hidden),
        all(layout, row, total_, problem_.hidden);
    const std::uint64_t ids = layout.add(bytes_of(DType::i32, total_, top_k)),
                        weights = layout.add(bytes_of(DType::f32, total_, top_k));
    sort_.emplace(layout, slots, std::max(rank_.local_experts, 1), stream.device->caps,
                  problem_.rows_per_expert(total_));
    batched_.emplace(layout, row, *sort_, problem_.hidden);
    const BufferView memory = memory_ = dispatch_memory_.reserve(*stream.context, layout.total_bytes());
    const WireRows mine = packed(stream, rows_of(tokens, {0, tokens.x.shape[0]}), own, memory);
    all_x_ = all.in(memory);
    all_ids_ = tensor_at(memory, ids, DType::i32, total_, top_k);
    rank_.ep.fork();
    WireRows::each(mine, all_x_, [&](const TensorView& from, const TensorView& to) { collect(from, to); });
    collect(tokens.ids, all_ids_);
    all_weights_ = {};
    if (tokens.weights.present()) {
      all_weights_ = tensor_at(memory, weights, DType::f32, total_, top_k);
      collect(tokens.weights, all_weights_);
    }
  }

  RoutedRows receive() override {
    rank_.ep.join();
    // A rank without experts sorts by one that nobody chose.
    const std::int32_t first = rank_.local_experts > 0 ? rank_.first_expert : rank_.experts;
    const StreamView stream = rank_.ep.rank_stream();
    const expert_sort::Args sort =
        sort_->in(memory_, all_ids_, first, std::max(rank_.experts, first + sort_->experts), brought_.fault);
    expert_sort::enqueue(stream, sort);
    slot_rows_ = sort.slot_rows;
    return rows_in_order(stream, all_x_, sort, problem_.top_k, *batched_, memory_);
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    sums_ = sums;
    const StreamView stream = rank_.ep.rank_stream();
    WorkspaceLayout layout;
    const std::uint64_t partial = layout.add(bytes_of(DType::f32, total_, problem_.hidden));
    const BufferView memory = combine_memory_.reserve(*stream.context, layout.total_bytes());
    combine::Args args;
    args.rows = expert_rows;
    args.slot_rows = slot_rows_;
    args.weights = all_weights_;
    args.out = tensor_at(memory, partial, DType::f32, total_, problem_.hidden);
    combine::enqueue(stream, args);
    rank_.ep.fork();
    if (!by_broadcast_) {
      rank_.dp.reduce_scatter(args.out, sums, tokens_);
      if (rank_.tp.size() > 1) rank_.tp.all_reduce(sums);
      return;
    }
    rank_.ep.all_reduce(args.out);
    const std::int64_t first = std::accumulate(tokens_.begin(), tokens_.begin() + rank_.dp.rank(), std::int64_t{0});
    const TensorView own = args.out.rows(first, sums.shape[0]);
    enqueue_copy(rank_.ep.stream(), own.buffer.slice(0, own.size_bytes()), sums.buffer.slice(0, sums.size_bytes()));
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return sums_alone(sums_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return dispatch_memory_.capacity_bytes() + combine_memory_.capacity_bytes();
  }

 private:
  /// Every dp rank's rows, one after the other.
  void collect(const TensorView& mine, const TensorView& all) {
    std::vector<std::uint64_t> bytes;
    for (const std::int64_t count : tokens_) bytes.push_back(bytes_of(all, count));
    const BufferView own = mine.buffer.slice(0, mine.size_bytes());
    if (!by_broadcast_) return rank_.dp.all_gather_v(own, all.buffer.slice(0, all.size_bytes()), bytes);
    std::uint64_t offset = 0;
    for (std::int32_t d = 0; d < rank_.dp.size(); offset += bytes[static_cast<std::size_t>(d++)]) {
      const BufferView slice = all.buffer.slice(offset, bytes[static_cast<std::size_t>(d)]);
      if (d == rank_.dp.rank()) enqueue_copy(rank_.ep.stream(), own, slice);
      rank_.dp.broadcast(slice, d);
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  bool by_broadcast_;
  Workspace dispatch_memory_, combine_memory_;
  std::vector<std::int64_t> tokens_;  ///< of each dp rank
  std::int64_t total_ = 0;
  // Between the steps.
  BufferView memory_;
  TokensIn brought_;
  std::optional<SortLayout> sort_;
  std::optional<BatchedLayout> batched_;
  WireRows all_x_;
  TensorView all_ids_, all_weights_, slot_rows_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_all_gather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast) {
  return std::make_unique<AllGather>(rank, problem, by_broadcast);
}

}  // namespace moecl
