#include "host/layer/special_experts.hpp"

#include <moecl/const_experts.hpp>
#include <moecl/expert_routes.hpp>

namespace moecl {

SpecialExperts::SpecialExperts(StreamView stream, const MoeShape& shape, DType dtype)
    : routed_(shape.experts),
      zeros_(shape.zero_experts),
      copies_(shape.copy_experts),
      constants_(shape.const_experts),
      width_(shape.expert_width()) {
  if (constants_ == 0) return;
  WorkspaceLayout layout;
  for (TensorView* view : {&alpha_1_, &alpha_2_, &v_}) *view = layout.add(dtype, {constants_, width_});
  memory_ = Buffer(*stream.context, layout.total_bytes());
  for (TensorView* view : {&alpha_1_, &alpha_2_, &v_}) *view = tensor_in(memory_.view(), *view);
}

void SpecialExperts::load(WeightUpload& upload, const MoeWeights& weights) {
  if (constants_ == 0) return;
  upload.copy(weights.const_alpha_1, alpha_1_);
  upload.copy(weights.const_alpha_2, alpha_2_);
  upload.copy(weights.const_v, v_);
}

SpecialExperts::Layout::Layout(WorkspaceLayout& workspace, const SpecialExperts& experts, std::int64_t tokens,
                               std::int32_t top_k) {
  if (!experts.give_rows()) return;
  owners = workspace.add(DType::i32, {tokens, top_k});
  slot_rows = workspace.add(DType::i32, {tokens, top_k});
  if (experts.constants_ > 0) rows = workspace.add(DType::f32, {(1 + experts.constants_) * tokens, experts.width_});
  sum = workspace.add(DType::f32, {tokens, experts.width_});
}

TensorView SpecialExperts::run(StreamView stream, TensorView x, TensorView ids, TensorView weights,
                               const Layout& layout, BufferView workspace, Plans& plans) const {
  if (!give_rows()) return {};
  expert_routes::Args routes;
  routes.expert_ids = ids;
  routes.experts = routed_;
  routes.zero_experts = zeros_;
  routes.copy_experts = copies_;
  routes.const_experts = constants_;
  routes.owners = tensor_in(workspace, layout.owners);
  routes.special_rows = tensor_in(workspace, layout.slot_rows);
  expert_routes::enqueue(stream, routes);
  combine::Args sum;
  sum.rows = x;
  if (constants_ > 0) {
    const const_experts::Args rows{x, alpha_1_, alpha_2_, v_, tensor_in(workspace, layout.rows)};
    const LaunchPlan& plan = plans.constants.find([&] { return const_experts::plan(rows, *stream.device); });
    const_experts::enqueue(stream, plan, rows);
    sum.rows = rows.rows;
  }
  sum.slot_rows = TensorView(routes.special_rows.buffer, DType::i32, {ids.elements()});
  sum.weights = weights;
  sum.out = tensor_in(workspace, layout.sum);
  enqueue_planned(stream, sum, plans.sum);
  return sum.out;
}

}  // namespace moecl
