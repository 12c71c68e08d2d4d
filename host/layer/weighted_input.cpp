#include "host/layer/weighted_input.hpp"

#include <moecl/index_vectors.hpp>

namespace moecl {

WeightedInput::Layout::Layout(WorkspaceLayout& workspace, const RouterSpec& router, DType dtype, std::int64_t tokens,
                              std::int64_t hidden) {
  if (!router.weight_on_input) return;
  index = workspace.add(DType::i32, {tokens, 1});
  weights = workspace.add(dtype, {tokens, 1});
  x = workspace.add(dtype, {tokens, hidden});
}

WeightedInput::WeightedInput(const RouterSpec& router, const Layout& layout, BufferView workspace, TensorView input,
                             TensorView router_weights)
    : x(input), weights(router_weights) {
  if (!router.weight_on_input) return;
  input_ = input;
  router_weights_ = router_weights;
  column_ = tensor_in(workspace, layout.index);
  if (input.dtype != DType::f32) rounded_ = tensor_in(workspace, layout.weights);
  x = tensor_in(workspace, layout.x);
  weights = {};
}

void WeightedInput::enqueue(StreamView stream, Plans& plans) const {
  if (!input_.present()) return;
  const TensorView identity(column_.buffer, DType::i32, {input_.shape[0]});
  index_vectors::enqueue(stream, index_vectors::ColumnOrder{column_});
  if (rounded_.present())
    enqueue_planned(stream, gather_rows::Args{router_weights_, identity, 1, {}, 0, rounded_}, plans.weights);
  // A combine with one row per token computes this product and rounds it once.
  combine::Args product;
  product.rows = input_;
  product.slot_rows = identity;
  product.weights = rounded_.present() ? rounded_ : router_weights_;
  product.out = x;
  enqueue_planned(stream, product, plans.product);
}

}  // namespace moecl
