#include "host/layer/layer_pass.hpp"

#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/route_tokens.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "host/layer/forward_args.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

namespace {

/// [T, K] as [T * K].
TensorView flat(const TensorView& ids) { return {ids.buffer, ids.dtype, {ids.elements()}}; }

}  // namespace

LayerPass::LayerPass(StreamView stream, const PassParts& over, const MoeForward& args, Part part)
    : stream_(stream), over_(over), args_(args), part_(part) {
  if (over_.memory != nullptr) over_.memory->begin(args.workspace);
}

void LayerPass::plan() {
  const auto take = [&](const PassLayout& layout) {
    layout_ = &layout;
    if (over_.memory == nullptr) {
      memory_ = args_.workspace;
    } else if (layout.bytes() > memory_.size_bytes) {
      memory_ = over_.memory->take(*stream_.context, layout.bytes());
    }
  };
  const std::int64_t tokens = args_.x.shape[0], of_group = over_.group != nullptr && over_.group->brings_tokens()
                                                               ? over_.group->tokens(*part_.tokens_of_ranks, tokens)
                                                               : tokens;
  plan_ = over_.plans.find(PassForm(*stream_.device, args_, over_.step, of_group), [&] {
    LayerPlan plan{{over_.parts, over_.strategy, tokens, over_.places != nullptr, over_.group, of_group}};
    take(plan.layout);
    if (const std::string reason = why_several_launches(); !reason.empty())
      plan.why_several_launches = "layer in several launches: " + reason;
    return plan;
  });
  take(plan_->layout);
}

void LayerPass::run(Submit submit) {
  if (run_at_once(submit)) return;
  const Trace::Span span(stream_.trace, plan_->why_several_launches);
  begin();
  run_shared();
  run_experts();
  finish(submit);
}

/// Runs the shared experts, then everything else in one launch.
bool LayerPass::run_at_once(Submit submit) {
  return with_next_variant(stream_, [&] {
    plan();
    if (!plan_->why_several_launches.empty()) return false;
    fused_moe::Args steps = *one_launch();
    const SharedExperts::Output shared = over_.parts.shared.run(
        stream_, args_.x, layout_->shared, memory_, {scratch(layout_->slices).buffer}, this->steps().shared);
    steps.combine.shared = shared.rows;
    steps.combine.shared_gate = shared.gate_logits;
    const RouterSpec& router = over_.parts.shape.router;
    const fused_moe::Plan& launch =
        this->steps().one_launch.find([&] { return fused_moe::plan(steps, router, {}, *stream_.device); });
    const TensorView& load = args_.expert_load;
    fused_moe::enqueue(stream_, launch, steps, router, load.present() ? Submit{submit.wait, nullptr} : submit);
    if (load.present())
      index_vectors::enqueue(stream_, index_vectors::KeyCounts{steps.gating.ids, load}, {{}, submit.done});
    return true;
  });
}

std::string LayerPass::why_several_launches() {
  const LayerParts& parts = over_.parts;
  const std::int64_t tokens = args_.x.shape[0], most = worthwhile_tokens(parts);
  if (!parts.options.one_launch) return "the layer's options forbid one";
  if (tokens > most) return fmt::format("{} tokens are more than {}", tokens, most);
  if (parts.options.layout == ExpertLayout::batched) return "the layout is batched";
  if (!layout_->needs.local) return "ranks exchange rows or sums";
  if (layout_->shared_beside) return "the shared experts run beside it";
  if (args_.ids.present() || args_.given_logits.present()) return "the routing is the caller's";
  if (args_.token_ids.present()) return "a table says the experts";
  if (args_.expert_input.present()) return "the experts have an input of their own";
  if (args_.topk_ids.dtype == DType::i64) return "ids are wanted in 64 bits";
  if (args_.expert_num_tokens.present() || args_.expert_rows.present()) return "the rows of each expert are asked for";
  if (over_.places != nullptr) return "experts stand at other places, or compute nothing";
  if (!parts.router.takes_codes()) return "CLBlast multiplies with the router";
  if (parts.shape.router.weight_on_input) return "weights multiply the input";
  if (args_.routed_out.present() || args_.shared_out.present()) return "parts of the output are asked for alone";
  if (is_in_place(args_)) return "the output is the input";
  const std::optional<fused_moe::Args> steps = one_launch();
  if (!steps) return "rows become no codes of 8 bits, or weights are in segments";
  return fused_moe::reject(*steps, parts.shape.router, {}, *parts.device);
}

/// The arguments of the one launch. The calls of the strategy enqueue nothing, since it is local.
std::optional<fused_moe::Args> LayerPass::one_launch() {
  const LayerParts& parts = over_.parts;
  const gating_top_k::Args choice = this->choice();
  prepare(choice);
  over_.strategy.begin_dispatch();
  over_.strategy.hook();
  const std::optional<Experts::Products> products =
      parts.experts.products(over_.strategy.receive(), *layout_->experts, memory_);
  if (!products) return std::nullopt;
  over_.strategy.begin_combine(products->down.out, {});
  combine::Args sum = over_.strategy.finish_combine();
  sum.out = args_.out;
  return fused_moe::Args{parts.router.product(args_.x, choice.logits),
                         choice,
                         products->gate_up,
                         products->down,
                         sum,
                         args_.fault,
                         scratch(layout_->one_launch).buffer,
                         codes_ ? codes_->args : quantize_groups::Args(),
                         products->activated};
}

/// The choice by the router, or by the caller.
gating_top_k::Args LayerPass::choice() const {
  const bool chosen = args_.ids.present();
  const TensorView& logits = args_.given_logits.present() ? args_.given_logits : args_.router_logits;
  return over_.parts.gating(given_or(logits, layout_->logits), args_,
                            given_or(chosen ? args_.ids : args_.topk_ids, layout_->ids),
                            given_or(chosen ? args_.weights : args_.topk_weights, layout_->weights));
}

std::optional<expert_sort::Args> LayerPass::prepare(const gating_top_k::Args& choice) {
  const LayerParts& parts = over_.parts;
  placed_ = over_.places != nullptr ? scratch(layout_->places) : choice.ids;
  input_ = WeightedInput(parts.shape.router, layout_->input, memory_, expert_input(), placed(choice).weights);
  TokensIn tokens{input_.x, placed_, input_.weights, args_.fault};
  tokens.reduce_results = over_.step.reduce_results && !reduces_once();
  tokens.tokens_of_ranks = part_.tokens_of_ranks;
  tokens.capacity = part_.capacity;
  codes_.reset();
  if (args_.expert_input_scale.present()) {
    tokens.x_scale = args_.expert_input_scale;
    tokens.x_group = code_rows(parts.options.activations)->group;
  } else if (layout_->needs.in_place && !parts.shape.router.weight_on_input)
    codes_ = parts.experts.token_codes(expert_input(), *layout_->experts, memory_);
  if (codes_) {
    tokens.x = codes_->rows.rows;
    tokens.x_scale = codes_->rows.scale;
    tokens.x_group = codes_->rows.group;
  }
  return over_.strategy.prepare(tokens, memory_.slice(layout_->strategy_at, layout_->needs.workspace_bytes));
}

void LayerPass::route() {
  plan();
  begin();
}

void LayerPass::prefetch(Submit submit) {
  const Trace::Span span(stream_.trace, "prefetch experts");
  plan();
  const gating_top_k::Args choice = this->choice();
  const std::optional<expert_sort::Args> sort = prepare(choice);
  choose(choice, sort, std::nullopt, true);
  over_.strategy.begin_dispatch();
  const RoutedRows rows = of_experts_here(over_.strategy.receive());
  over_.parts.experts.prefetch(stream_, rows.row_ends, rows.rows);
  enqueue_marker(stream_, submit);
  if (submit.done != nullptr) stream_.flush();  // passes wait for it on another queue
}

void LayerPass::begin() {
  if (layout_->shared_beside && (args_.out.present() || args_.shared_out.present())) {
    const Trace::Span span(stream_.trace, "shared experts on a queue of their own");
    beside_ = SideWork(stream_, [&](StreamView side) {
      enqueue_shared(side, args_.x, {scratch(layout_->shared_slices).buffer, true});
    });
  }
  const gating_top_k::Args choice = this->choice();
  const std::optional<expert_sort::Args> sort = prepare(choice);  // ranks agree before anything is enqueued
  choose(choice, sort, codes_, layout_->shared_beside || !over_.parts.options.one_launch);
  run_special(placed(choice));
  if (args_.topk_ids.present() && args_.topk_ids.dtype == DType::i64)
    index_vectors::enqueue(stream_, index_vectors::Widen{flat(choice.ids), flat(args_.topk_ids)});
  input_.enqueue(stream_, steps().input);
  over_.strategy.begin_dispatch();
}

void LayerPass::choose(const gating_top_k::Args& choice, const std::optional<expert_sort::Args>& sort,
                       const std::optional<RowQuant::Step>& codes, bool concurrent) {
  const RouterSpec& router = over_.parts.shape.router;
  const DenseProduct& product = over_.parts.router;
  const Device& device = *stream_.device;
  const bool chosen = args_.ids.present(), routes = over_.parts.has_router && !args_.given_logits.present();
  // One operator chooses and sorts, if the chosen ids are the ids to sort.
  if (!chosen && !args_.token_ids.present() && over_.places == nullptr && sort && sort->ids.shape == choice.ids.shape) {
    const BufferView memory = scratch(layout_->slices).buffer;
    route_tokens::Args routing{choice, *sort, codes ? codes->args : quantize_groups::Args()};
    routing.scratch = memory;
    routing.concurrent = concurrent;
    if (routes && product.takes_codes())
      routing.router = product.product(args_.x, choice.logits, {memory});
    else
      run_router(choice);
    return with_next_variant(stream_, [&] {
      plan();
      const route_tokens::Plan& launches =
          steps().route.find([&] { return route_tokens::plan(routing, router, device); });
      route_tokens::enqueue(stream_, launches, routing, router);
    });
  }
  run_router(choice);
  if (!chosen) {
    const LaunchPlan& launch = steps().gating.find([&] { return gating_top_k::plan(choice, router, {}, device); });
    gating_top_k::enqueue(stream_, launch, choice, router);
  }
  if (over_.places != nullptr)
    over_.places->find(stream_, choice.ids, choice.weights, part_.first_token, placed_,
                       scratch(layout_->placed_weights), args_.fault);
  if (sort) {
    const expert_sort::Plan& launches = steps().sort.find([&] { return expert_sort::plan(*sort, {}, device); });
    expert_sort::enqueue(stream_, launches, *sort);
  }
  if (codes) enqueue_planned(stream_, codes->args, steps().codes);
}

void LayerPass::run_router(const gating_top_k::Args& choice) {
  const LayerParts& parts = over_.parts;
  const bool chosen = args_.ids.present(), routes = !chosen && !args_.given_logits.present();
  if (parts.has_router && (routes || args_.router_logits.present()))
    parts.router.enqueue(stream_, args_.x, choice.logits, {scratch(layout_->slices).buffer}, steps().router);
  else if (routes && !stream_.compiles_only)  // a table chooses, and its experts get equal logits
    enqueue_fill(stream_, choice.logits.buffer.slice(0, choice.logits.size_bytes()), 0);
  if (chosen && args_.ids.dtype == DType::i64)
    index_vectors::enqueue(
        stream_, index_vectors::Narrow{args_.ids, -1, parts.shape.ids(), -1, {}, flat(choice.ids), args_.fault});
}

void LayerPass::run_special(const gating_top_k::Args& choice) {
  special_ = {};
  const bool partial = !over_.step.reduce_results || reduces_once();
  if (partial && !over_.first_of_tokens) return;  // another rank adds these experts' result to its sum
  const TensorView& x = args_.expert_input_scale.present() ? args_.x : expert_input();
  special_ =
      over_.parts.special.run(stream_, x, choice.ids, choice.weights, layout_->special, memory_, steps().special);
}

void LayerPass::run_shared() {
  over_.strategy.hook();
  if (layout_->shared_beside) return;
  if (!args_.out.present() && !args_.shared_out.present() && (over_.group == nullptr || !over_.group->meets())) return;
  const std::int64_t tokens = args_.x.shape[0];
  shared_share_ = {0, tokens};
  if (over_.group != nullptr) shared_share_ = over_.group->share(tokens, over_.step.reduce_results);
  const TensorView x = over_.group != nullptr && over_.group->brings_tokens()
                           ? over_.group->bring(args_.x, *part_.tokens_of_ranks, layout_->of_group, memory_)
                           : args_.x.rows(shared_share_.begin, shared_share_.count);
  enqueue_shared(stream_, x, {scratch(layout_->slices).buffer});
}

void LayerPass::enqueue_shared(StreamView stream, const TensorView& x, const SliceScratch& scratch) {
  shared_ = over_.parts.shared.run(stream, x, layout_->shared, memory_, scratch, steps().shared);
}

void LayerPass::run_experts() {
  RoutedRows rows = over_.strategy.receive();
  count(rows);
  rows = of_experts_here(rows);
  const Experts& experts = over_.parts.experts;
  const Experts::Counts counts{expected_rows(rows), most_rows(rows)};
  received_ = steps().received({rows.x.shape[0], rows.rows, counts.expected, experts.in_waves(counts.most)});
  if (layout_->experts)
    return send_home(experts.run(stream_, rows, counts, *layout_->experts, memory_, received_->routed));
  WorkspaceLayout layout;
  const Experts::Layout of_rows(layout, experts, rows.x.shape[0], rows.rows);
  const BufferView memory = over_.memory->take(*stream_.context, layout.total_bytes());
  send_home(experts.run(stream_, rows, counts, of_rows, memory, received_->routed));
}

std::int64_t LayerPass::expected_rows(const RoutedRows& rows) const {
  const MoeShape& shape = over_.parts.shape;
  const std::int64_t chosen = part_.tokens_of_all * shape.router.top_k, experts = shape.experts;
  return quotient_up(chosen * rows.row_ends.shape[0], std::max<std::int64_t>(experts, 1));
}

RoutedRows LayerPass::of_experts_here(RoutedRows rows) const {
  rows.row_ends = rows.row_ends.rows(0, std::max<std::int64_t>(over_.parts.local_experts(), 1));
  return rows;
}

std::int64_t LayerPass::most_rows(const RoutedRows& rows) const {
  return std::min(rows.rows, part_.tokens_brought * over_.parts.shape.router.top_k);
}

void LayerPass::count(const RoutedRows& rows) {
  const auto count_in = [&](const TensorView& counts, bool add) {
    if (!counts.present() || counts.shape[0] == 0) return;  // a rank without experts still has one row end
    index_vectors::enqueue(stream_, index_vectors::RowCounts{rows.row_ends, counts, add});
  };
  count_in(args_.expert_num_tokens, !part_.first);
  count_in(args_.expert_load, true);
}

void LayerPass::send_home(TensorView expert_rows) {
  TensorView sums;
  if (layout_->needs.fills_sums) sums = sums_alone().present() ? sums_alone() : scratch(layout_->sums);
  over_.strategy.begin_combine(expert_rows, sums);
}

TensorView LayerPass::sums_alone() const {
  if (!layout_->needs.fills_sums || args_.shared_out.present() || args_.expert_rows.present()) return {};
  if (over_.parts.special.give_rows()) return {};
  const bool shared = over_.parts.shape.shared_intermediate > 0;
  const TensorView& only = !args_.out.present()                   ? args_.routed_out
                           : shared || args_.routed_out.present() ? TensorView()
                                                                  : args_.out;
  return only.present() && only.dtype == DType::f32 && only.contiguous() ? only : TensorView();
}

namespace {

/// `all`, restricted to the tokens of a share.
combine::Args of_tokens(const combine::Args& all, Share share) {
  combine::Args some = all;
  const std::int64_t each = all.slot_rows.shape[0] / std::max<std::int64_t>(all.out.shape[0], 1);
  some.slot_rows = all.slot_rows.rows(share.begin * each, share.count * each);
  if (all.weights.present()) some.weights = all.weights.rows(share.begin, share.count);
  some.out = all.out.rows(share.begin, share.count);
  if (all.shared.present()) some.shared = all.shared.rows(share.begin, share.count);
  return some;
}

}  // namespace

void LayerPass::finish(Submit submit) {
  combine::Args sum = over_.strategy.finish_combine();
  beside_.join();
  if (sums_alone().present()) return enqueue_marker(stream_, submit);
  if (over_.group != nullptr && !reduces_once() && (over_.step.reduce_results || over_.group->brings_tokens()))
    shared_ = over_.group->gather(shared_, *part_.tokens_of_ranks, layout_->of_group, memory_, *over_.memory);
  if (!sum.slot_rows.present()) {  // each token has one row: its sum
    const TensorView order = scratch(layout_->order);
    index_vectors::enqueue(stream_, index_vectors::ColumnOrder{order});
    sum.slot_rows = flat(order);
  }
  if (args_.expert_rows.present()) {  // treats each slot as a token of one row
    combine::Args rows = sum;
    rows.weights = {};
    rows.out = args_.expert_rows;
    enqueue_planned(stream_, rows, received_->rows_home);
  }
  if (args_.shared_out.present()) {
    combine::Args no_rows;
    no_rows.rows = shared_.rows;
    no_rows.slot_rows = TensorView(sum.slot_rows.buffer, DType::i32, {0});
    add_shared(no_rows, args_.shared_out, received_->shared_sum);
  }
  sum.shared = special_;
  if (reduces_once()) return reduce_once(sum, submit);
  if (args_.routed_out.present()) {
    sum.out = args_.routed_out;
    enqueue_planned(stream_, sum, received_->routed_sum);
  }
  if (!args_.out.present()) return enqueue_marker(stream_, submit);
  add_shared(sum, args_.out, received_->sum, submit);
}

bool LayerPass::reduces_once() const {
  return over_.group != nullptr && over_.group->adds_parts() && over_.step.reduce_results &&
         over_.parts.shape.shared_intermediate > 0 && args_.out.present() && !args_.routed_out.present() &&
         !args_.shared_out.present();
}

void LayerPass::reduce_once(const combine::Args& sum, Submit submit) {
  const bool in_place = args_.out.dtype == DType::f32 && args_.out.contiguous();
  const TensorView total = in_place ? args_.out : scratch(layout_->of_group.total);
  add_shared(sum, total, received_->sum);
  over_.group->add_up(total, *over_.memory);
  if (in_place) return enqueue_marker(stream_, submit);
  combine::Args stored;
  stored.rows = total;
  stored.slot_rows = sum.slot_rows;
  stored.out = args_.out;
  enqueue_planned(stream_, stored, received_->stored, submit);
}

/// @param sum  Its `shared` is the result of the experts without products, if any
void LayerPass::add_shared(combine::Args sum, TensorView out, SumPlans& plans, Submit submit) {
  sum.out = out;
  if (!shared_.rows.present()) return enqueue_planned(stream_, sum, plans.with_shared, submit);
  if (shared_.rows.shape[0] != out.shape[0]) {  // the shared part of some tokens only
    enqueue_planned(stream_, sum, plans.without_shared);
    sum = of_tokens(sum, shared_share_);
  }
  sum.residual = sum.shared;
  sum.shared = shared_.rows;
  sum.shared_gate = shared_.gate_logits;
  enqueue_planned(stream_, sum, plans.with_shared, submit);
}

}  // namespace moecl
