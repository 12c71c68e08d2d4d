// Passes of a ParallelLayer: strategy, chunks and micro-batches. Also prefetches, which precede a pass.
#include <moecl/trace.hpp>

#include "dispatch/put_window.hpp"
#include "host/layer/forward_args.hpp"
#include "host/layer/parallel_state.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

/// Exchanges run beside the rank's stream if other work can overlap with them.
bool exchanges_beside(const ExpertRank& rank, const MoeShape& shape, const ParallelPlan& plan) {
  return rank.ep.size() > 1 &&
         (shape.shared_intermediate > 0 || plan.dbo_decode_token_threshold || plan.dbo_prefill_token_threshold);
}

}  // namespace

std::uint64_t ParallelLayer::workspace_bytes(const Step& step) const { return state_->workspace_bytes(step); }

void ParallelLayer::forward(const Forward& args, const Step& step, Submit submit) {
  expect_driver_process();
  State& of = *state_;
  const Trace::Span span(of.rank.ep.rank_stream().trace, "forward");
  of.rank.ep.together([&] {
    // Errors of this rank's arguments are found here, before the other ranks hear of the step.
    const MoeForward checked = of.checked(args, step);
    Step all = step;
    if (!all.strategy && !of.plan.rules) all.strategy = of.plan.strategy;
    of.forward(checked, AgreedStep(of.exchanging, all, checked.x.shape[0], of.agreed_about_layer(checked)), submit);
  });
}

void ParallelLayer::forward(const Forward& args, const AgreedStep& step, Submit submit) {
  expect_driver_process();
  State& of = *state_;
  const Trace::Span span(of.rank.ep.rank_stream().trace, "forward");
  of.rank.ep.together([&] {
    step.expect_of(of.exchanging);
    of.forward(of.checked(args, step.step()), step, submit);
  });
}

void ParallelLayer::prefetch(const MoeInputs& tokens, Submit submit) {
  expect_driver_process();
  state_->rank.ep.together([&] { state_->prefetch(tokens, submit); });
}

void ParallelLayer::forward_experts(const ExpertRows& rows, Submit submit) {
  state_->parts.expect_whole();
  run_expert_pass(state_->rank.ep.rank_stream(), state_->parts, state_->expert_plans, rows, submit);
}
std::uint64_t ParallelLayer::expert_workspace_bytes(std::int64_t rows, std::int64_t slots) const {
  return expert_pass_bytes(state_->parts, rows, slots);
}

AgreedStep ParallelLayer::agree(const Step& step, std::int64_t tokens) const {
  return AgreedStep(state_->exchanging, step, tokens);
}

const StrategyChoice& ParallelLayer::last_strategy() const noexcept { return state_->last; }

StrategyChoice ParallelLayer::State::choose(const StrategyQuestion& question) const {
  SelectStrategy problem{rank.ep.size(), exchanging.tp.size(), question.most_tokens};
  problem.ranks_per_node = rank.node.size();
  problem.wanted = question.wanted;
  if (!plan.rules) problem.wanted = question.wanted.value_or(plan.strategy);
  if (!problem.wanted) {
    problem.sharding = rank.sharding;
    problem.rules = *plan.rules;
    problem.experts = shape.experts;
    problem.top_k = shape.router.top_k;
    problem.put_windows = PutWindow::reject(rank.ep).empty();
  }
  return select_strategy(problem);
}

Strategy& ParallelLayer::State::strategy(std::size_t lane, StrategyKind kind) {
  if (alone[lane] != nullptr) return *alone[lane];
  Strategy*& known = strategies[lane][static_cast<std::size_t>(kind)];
  if (known == nullptr)
    known = &pool->strategy(lane, kind, exchanging, exchanges_beside(rank, shape, plan),
                            problem_of(shape, parts.options, plan.wire));
  return *known;
}

ParallelLayer::State::Cut ParallelLayer::State::cut(const Step& step, std::int64_t most) const {
  const std::int64_t chunk = parts.options.chunk_tokens;
  const auto chunks = static_cast<std::int32_t>(chunk == 0 ? 1 : std::max<std::int64_t>(quotient_up(most, chunk), 1));
  const auto& threshold = step.uniform_decode ? plan.dbo_decode_token_threshold : plan.dbo_prefill_token_threshold;
  const bool two = threshold && share_of(most, chunks, 0).count >= *threshold;
  return {chunks, step.micro_batches.value_or(two ? 2 : 1)};
}

std::uint64_t ParallelLayer::State::batch_bytes(std::int64_t tokens, StrategyKind kind) {
  const Strategy& of = strategy(0, kind);
  const std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(rank.ep.size()), tokens);
  const PassLayout layout(parts, of, tokens, places.present(), &group, group.tokens(of_ranks, tokens));
  const StepBytes step = of.bytes(of_ranks);
  WorkspaceLayout experts;
  if (!layout.experts) Experts::Layout(experts, parts.experts, step.source_rows, step.rows);
  return layout.bytes() + step.workspace + experts.total_bytes();
}

std::uint64_t ParallelLayer::State::workspace_bytes(const Step& step) {
  require(step.max_tokens_across_dp && *step.max_tokens_across_dp >= 0,
          "workspace: its size depends on max_tokens_across_dp, which the step does not say");
  const StrategyKind kind = choose({step.strategy, *step.max_tokens_across_dp}).kind;
  const Cut cuts = cut(step, *step.max_tokens_across_dp);
  const std::int64_t most = share_of(share_of(*step.max_tokens_across_dp, cuts.chunks, 0).count, cuts.batches, 0).count;
  // If a last batch of a few tokens runs in one launch, it may need more than a whole batch.
  const std::int64_t rest = alone[0] != nullptr ? std::min(most, one_launch_tokens(parts)) : most;
  return static_cast<std::uint64_t>(cuts.batches) * std::max(batch_bytes(most, kind), batch_bytes(rest, kind));
}

MoeForward ParallelLayer::State::checked(const MoeForward& given, const Step& step) {
  parts.expect_whole();
  MoeForward args = checked_forward(given, shape, parts, rank.local_experts);
  require(given.x.present() || shape.shared_intermediate == 0 || !group.meets(),
          "x: absent, but the ranks of a tp group exchange what the shared experts make of it");
  if (!plan.rules || step.strategy) expect_rows_home(args, step.strategy.value_or(plan.strategy));
  if (!args.finished.present() && !args.ids.present()) args.finished = step.finished;
  if (args.workspace.handle != nullptr) {
    const std::uint64_t needed = workspace_bytes(step);
    require(args.workspace.size_bytes >= needed, "workspace: a step of at most {} tokens needs {} bytes, got {}",
            *step.max_tokens_across_dp, needed, args.workspace.size_bytes);
    expect_workspace_start(args.workspace);
    args.workspace = args.workspace.slice(0, needed);
  }
  MoeForward apart = args;
  if (is_in_place(args)) apart.x = {};
  expect_operands_apart(apart, args.workspace);
  return args;
}

void ParallelLayer::State::expect_rows_home(const MoeForward& args, StrategyKind kind) const {
  if (!args.expert_rows.present() || alone[0] != nullptr) return;
  const bool over_nodes = kind == StrategyKind::mc2 && rank.peers.size() > 1;
  if (combine_form(kind, parts.options.dtype, plan.wire) != CombineForm::rows || exchanging.tp.size() > 1 || over_nodes)
    fail(ErrorCode::unsupported,
         "expert_rows: {} of {} brings sums home, not rows; all2all_v without tp groups brings rows, mc2 on one node "
         "those of f32",
         name(kind), name(parts.options.dtype));
}

void ParallelLayer::State::forward(const MoeForward& args, const AgreedStep& agreed, Submit submit) {
  const std::int64_t tokens = args.x.shape[0];
  require(tokens == agreed.tokens(), "forward: x has {} tokens, the step {}", tokens, agreed.tokens());
  call.step = agreed.step();
  call.step.num_tokens_across_dp.clear(), call.step.cu_tokens_across_dp.clear();
  call.first_token = agreed.tokens_before();
  call.tokens_of_ranks = agreed.tokens_of_ranks();
  call.max_tokens = agreed.max_tokens();
  const StrategyQuestion question{call.step.strategy, call.max_tokens};
  if (last_question != question) {
    last = choose(question);
    last_question = question;
  }
  call.step.strategy = last.kind;
  expect_rows_home(args, last.kind);
  const StreamView stream = rank.ep.rank_stream();
  enqueue_marker(stream, {submit.wait, nullptr});
  // All ranks have the same number of chunks, and of micro-batches per chunk.
  const Cut cuts = cut(call.step, call.max_tokens);
  for (std::int32_t i = 0; i < cuts.chunks; ++i) {
    const Share rows = share_of(tokens, cuts.chunks, i);
    MoeForward some = part_of(args, rows.begin, rows.count);
    some.workspace = args.workspace;
    chunk.become_part(call, cuts.chunks, i, rank.ep.rank());
    run(some, chunk, cuts.batches);
  }
  enqueue_marker(stream, {{}, submit.done});
}

void ParallelLayer::State::prefetch(const MoeInputs& tokens, Submit submit) {
  parts.expect_whole();
  const MoeForward args = checked_prefetch(tokens, shape, parts);
  if (ahead == nullptr) ahead = std::make_unique<Ahead>(exchanging, shape.router.top_k, parts.experts);
  ahead->rank.ep.fork();
  const StreamView stream = ahead->rank.ep.stream();
  enqueue_marker(stream, {submit.wait, nullptr});
  if (ahead->most_rows > 0) {
    const AgreedStep step(ahead->rank, {}, args.x.shape[0], agreed_about_layer(args));
    TokenBatch all{step.step(), step.tokens_before(), true, step.tokens_of_ranks(), step.max_tokens()};
    const std::int64_t brought = all.tokens_brought(exchanging.tp.size());
    if (brought * shape.router.top_k <= ahead->most_rows)
      return LayerPass(stream,
                       {parts, ahead->plans, ahead->choices, &ahead->memory, places.present() ? &places : nullptr},
                       args, {all.first_token, true, &all.tokens_of_ranks, 0, brought, brought})
          .prefetch({{}, submit.done});
  }
  enqueue_marker(stream, {{}, submit.done});
  if (submit.done != nullptr) stream.flush();
}

LayerPass ParallelLayer::State::pass(std::size_t lane, const MoeForward& args, const TokenBatch& batch) {
  const bool bounded = batch.step.max_tokens_across_dp.has_value();
  return {rank.ep.rank_stream(),
          {parts, plans, strategy(lane, *batch.step.strategy), &pool->memory(lane),
           places.present() ? &places : nullptr, &group, batch.step, exchanging.tp.rank() == 0},
          args,
          {batch.first_token, batch.first, &batch.tokens_of_ranks,
           bounded ? share_of(batch.max_tokens, exchanging.tp.size(), 0).count : 0,
           batch.tokens_of_all(exchanging.tp.size()), batch.tokens_brought(exchanging.tp.size())}};
}

/// The micro-batches' steps alternate on the rank's stream: while rows of one travel, kernels of the other run.
void ParallelLayer::State::run(const MoeForward& args, const TokenBatch& batch, std::int32_t batches) {
  if (batches == 1) return pass(0, args, batch).run();
  const std::int64_t tokens = args.x.shape[0];
  const auto micro_pass = [&](std::int32_t i) {
    const auto lane = static_cast<std::size_t>(i);
    micro_batches[lane].become_part(batch, batches, i, rank.ep.rank());
    const Share rows = share_of(tokens, batches, i);
    MoeForward some = part_of(args, rows.begin, rows.count);
    const std::uint64_t bytes = args.workspace.size_bytes / static_cast<std::uint64_t>(batches);
    if (args.workspace.handle != nullptr)
      some.workspace = args.workspace.slice(static_cast<std::uint64_t>(i) * bytes, bytes);
    return pass(lane, some, micro_batches[lane]);
  };
  LayerPass passes[] = {micro_pass(0), micro_pass(1)};
  for (LayerPass& each : passes) each.route();
  for (LayerPass& each : passes) each.run_shared();
  for (LayerPass& each : passes) each.run_experts();
  for (LayerPass& each : passes) each.finish();
}

}  // namespace moecl
