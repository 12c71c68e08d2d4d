#include "host/layer/layer_plan.hpp"

#include <moecl/context.hpp>
#include <moecl/fused_moe.hpp>

#include <algorithm>

#include "host/layer/forward_args.hpp"

namespace moecl {
namespace {

constexpr std::uint64_t alignment_bytes = 16;  // of vector loads

}  // namespace

ExpertProblem problem_of(const MoeShape& shape, const MoeLayerOptions& options, WireFormat wire) {
  return {shape.expert_width(),   shape.router.top_k,
          options.dtype,          wire,
          options.activations,    options.layout == ExpertLayout::batched,
          options.rows_per_expert};
}

std::int64_t worthwhile_tokens(const LayerParts& parts) {
  return parts.experts.are_weight_only() ? fused_moe::worthwhile_weight_only_tokens : fused_moe::worthwhile_tokens;
}

std::int64_t one_launch_tokens(const LayerParts& parts) {
  if (!parts.options.one_launch || parts.shared.tokens_beside() > 0) return 0;
  return worthwhile_tokens(parts);
}

PassLayout::PassLayout(const LayerParts& parts, const Strategy& strategy, std::int64_t tokens, bool placed,
                       const SharedGroup* group, std::int64_t group_tokens)
    : needs(strategy.needs(tokens)),
      logits(workspace.add(DType::f32, {tokens, parts.shape.choices()})),
      ids(workspace.add(DType::i32, {tokens, parts.shape.router.top_k})),
      weights(workspace.add(DType::f32, {tokens, parts.shape.router.top_k})),
      input(workspace, parts.shape.router, parts.options.dtype, tokens, parts.shape.expert_width()),
      strategy_at(workspace.total_bytes()),
      shared((workspace.add(needs.workspace_bytes), workspace), parts.shared, group_tokens),
      slices(workspace.add(DType::u8, {static_cast<std::int64_t>(grouped_gemm::scratch_bytes(parts.device->caps))})),
      shared_beside(needs.local && group == nullptr && tokens <= parts.shared.tokens_beside()),
      special(workspace, parts.special, tokens, parts.shape.router.top_k) {
  const MoeShape& shape = parts.shape;
  if (placed) {
    places = workspace.add(DType::i32, {tokens, shape.router.top_k});
    placed_weights = workspace.add(DType::f32, {tokens, shape.router.top_k});
  }
  if (shared_beside) {
    const std::uint64_t bytes = grouped_gemm::scratch_bytes(parts.device->caps, true);
    shared_slices = workspace.add(DType::u8, {static_cast<std::int64_t>(bytes)});
  }
  const bool only_summed = needs.local && tokens > one_launch_tokens(parts);
  if (needs.rows >= 0)
    experts.emplace(workspace, parts.experts, needs.source_rows, needs.rows,
                    only_summed ? parts.experts.result_dtype(needs.rows) : DType::f32);
  if (group != nullptr)
    of_group = SharedGroup::Layout(workspace, *group, tokens, group_tokens, shape.hidden, parts.options.dtype);
  if (needs.fills_sums) {
    sums = workspace.add(DType::f32, {tokens, shape.expert_width()});
    order = workspace.add(DType::i32, {tokens, 1});
  }
  if (!needs.local || tokens > one_launch_tokens(parts)) return;
  const std::uint64_t bytes =
      fused_moe::scratch_bytes(tokens, shape.hidden, shape.experts, shape.router.top_k, {}, parts.device->caps);
  one_launch = workspace.add(DType::u8, {static_cast<std::int64_t>(bytes)});
}

PassForm::Operand PassForm::Operand::of(const TensorView& view) {
  return {view.present(), view.dtype, view.stride[0], view.buffer.offset_bytes % alignment_bytes};
}

PassForm::PassForm(const Device& device, const MoeForward& args, const Step& step, std::int64_t of_group)
    : tokens(args.x.shape[0]),
      group_tokens(of_group < 0 ? tokens : of_group),
      strategy(step.strategy.value_or(StrategyKind::mc2)),
      reduce_results(step.reduce_results),
      failed_variants(device.failed_variants->size()),
      in_place(is_in_place(args)),
      operands{Operand::of(args.x),
               Operand::of(args.expert_input),
               Operand::of(args.expert_input_scale),
               Operand::of(args.given_logits),
               Operand::of(args.token_ids),
               Operand::of(args.ids),
               Operand::of(args.weights),
               Operand::of(args.finished),
               Operand::of(args.out),
               Operand::of(args.routed_out),
               Operand::of(args.shared_out),
               Operand::of(args.router_logits),
               Operand::of(args.topk_ids),
               Operand::of(args.topk_weights),
               Operand::of(args.expert_rows),
               Operand::of(args.expert_num_tokens),
               {false, DType::u8, 0, args.workspace.offset_bytes % alignment_bytes}} {}

}  // namespace moecl
