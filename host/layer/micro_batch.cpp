#include "host/layer/micro_batch.hpp"

#include <moecl/combine.hpp>
#include <moecl/index_vectors.hpp>

#include "dispatch/share.hpp"
#include "host/layer/scratch.hpp"

namespace moecl {
namespace {

/// Whether nothing is left to do to the routed sums: then the strategy writes them where they are wanted.
bool routed_is_all(const MoeShape& shape, const ParallelLayer::Forward& args) {
  return shape.shared_intermediate == 0 && !args.routed_out.present() && args.out.dtype == DType::f32 &&
         args.out.contiguous();
}

/// `rows` of every rank of the group, one after the other. @param mine  of this rank's share of them
void gather_shares(Communicator& ranks, const TensorView& mine, const TensorView& rows) {
  std::vector<std::uint64_t> bytes;
  for (std::int32_t r = 0; r < ranks.size(); ++r)
    bytes.push_back(rows.rows(0, share_of(rows.shape[0], ranks.size(), r).count).size_bytes());
  ranks.all_gather_v(mine.buffer.slice(0, mine.size_bytes()), rows.buffer.slice(0, rows.size_bytes()), bytes);
}

}  // namespace

MicroBatch::Layout::Layout(const LayerParts& parts, const MoeShape& shape, std::int64_t tokens, bool shared_by_tokens)
    : logits(workspace.add(DType::f32, {tokens, shape.experts})),
      ids(workspace.add(DType::i32, {tokens, shape.router.top_k})),
      physical(workspace.add(DType::i32, {tokens, shape.router.top_k})),
      weights(workspace.add(DType::f32, {tokens, shape.router.top_k})),
      routed(workspace.add(DType::f32, {tokens, shape.hidden})),
      index(workspace.add(DType::i32, {tokens, 1})),
      all_shared(workspace.add(DType::f32, {shared_by_tokens ? tokens : 0, shape.hidden})),
      all_gate_logits(workspace.add(DType::f32, {shared_by_tokens ? tokens : 0, 1})),
      slices(workspace.add(DType::u8, {static_cast<std::int64_t>(grouped_gemm::scratch_bytes(parts.device->caps))})),
      input(workspace, shape.router, parts.options.dtype, tokens, shape.hidden),
      shared(workspace, parts.shared, tokens) {}

MicroBatch::MicroBatch(const ExpertRank& rank, const ParallelPlan& plan, const LayerParts& parts,
                       const ExpertPlaces& places)
    : rank_(rank),
      plan_(plan),
      parts_(parts),
      places_(places),
      strategy_(Strategy::make(
          plan.strategy, plan.replace_allreduce ? rank.with_own_tokens() : rank,
          {parts.shape.hidden, parts.shape.router.top_k, parts.options.dtype, plan.wire, parts.options.activations})) {}

void MicroBatch::route(const ParallelLayer::Forward& args, std::int64_t first_token) {
  const MoeShape& shape = parts_.shape;
  const StreamView stream = rank_.ep.rank_stream();
  const std::int64_t tokens = args.x.shape[0];
  args_ = args;
  layout_ = std::make_unique<Layout>(parts_, shape, tokens, plan_.shared_sharding == SharedSharding::tokens);
  memory_ = token_memory_.reserve(*stream.context, layout_->workspace.total_bytes());
  routed_ = routed_is_all(shape, args) ? args.out : tensor_in(memory_, layout_->routed);
  const TensorView logits = given_or(args.router_logits, memory_, layout_->logits),
                   ids = given_or(args.topk_ids, memory_, layout_->ids),
                   weights = given_or(args.topk_weights, memory_, layout_->weights);
  parts_.router.enqueue(stream, args.x, logits, tensor_in(memory_, layout_->slices).buffer);
  gating_top_k::enqueue(stream, parts_.gating(logits, args.finished, ids, weights), shape.router);
  TensorView physical = ids;
  if (places_.present()) {
    physical = tensor_in(memory_, layout_->physical);
    places_.find(stream, ids, first_token, physical, args.fault);
  }
  const WeightedInput input(stream, shape.router, layout_->input, memory_, args.x, weights);
  strategy_->begin_dispatch({input.x, physical, input.weights, args.fault});
}

void MicroBatch::run_shared() {
  strategy_->hook();
  Share mine{0, args_.x.shape[0]};
  if (plan_.shared_sharding == SharedSharding::tokens) mine = share_of(mine.count, rank_.tp.size(), rank_.tp.rank());
  shared_ = parts_.shared.run(rank_.ep.rank_stream(), args_.x.rows(mine.begin, mine.count), layout_->shared, memory_,
                              tensor_in(memory_, layout_->slices).buffer);
}

void MicroBatch::run_experts() {
  const StreamView stream = rank_.ep.rank_stream();
  const RoutedRows rows = strategy_->receive();
  WorkspaceLayout layout;
  const Experts::Layout of_rows(layout, parts_.experts, rows.x.shape[0], rows.rows);
  const BufferView memory = row_memory_.reserve(*stream.context, layout.total_bytes());
  strategy_->begin_combine(parts_.experts.run(stream, rows, of_rows, memory), routed_);
}

/// From what this rank has of them: some tokens, or a part of the sum over the intermediate size.
SharedExperts::Output MicroBatch::shared_of_all_tokens() {
  if (!shared_.rows.present() || rank_.tp.size() == 1 || plan_.shared_sharding == SharedSharding::replicated)
    return shared_;
  SharedExperts::Output all = shared_;
  rank_.tp.fork();
  if (plan_.shared_sharding == SharedSharding::intermediate) {
    rank_.tp.all_reduce(all.rows);
  } else {
    all.rows = tensor_in(memory_, layout_->all_shared);
    gather_shares(rank_.tp, shared_.rows, all.rows);
    if (shared_.gate_logits.present()) {
      all.gate_logits = tensor_in(memory_, layout_->all_gate_logits);
      gather_shares(rank_.tp, shared_.gate_logits, all.gate_logits);
    }
  }
  rank_.tp.join();
  return all;
}

/// routed + shared part: a combine of one row a token.
void MicroBatch::write(const SharedExperts::Output& shared, TensorView out) {
  combine::Args args;
  args.rows = routed_;
  args.slot_rows = TensorView(tensor_in(memory_, layout_->index).buffer, DType::i32, {routed_.shape[0]});
  args.shared = shared.rows;
  args.shared_gate = shared.gate_logits;
  args.out = out;
  combine::enqueue(rank_.ep.rank_stream(), args);
}

void MicroBatch::finish() {
  strategy_->finish_combine();
  if (routed_is_all(parts_.shape, args_)) return;
  const SharedExperts::Output shared = shared_of_all_tokens();
  const TensorView identity = tensor_in(memory_, layout_->index);
  index_vectors::enqueue(rank_.ep.rank_stream(), index_vectors::ColumnOrder{identity});
  if (args_.routed_out.present()) write({}, args_.routed_out);
  write(shared, args_.out);
}

std::uint64_t MicroBatch::workspace_bytes() const noexcept {
  return token_memory_.capacity_bytes() + row_memory_.capacity_bytes() + strategy_->workspace_bytes();
}

}  // namespace moecl
