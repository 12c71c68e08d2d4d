#include "host/layer/weighted_input.hpp"

#include <moecl/combine.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>

namespace moecl {

WeightedInput::Layout::Layout(WorkspaceLayout& workspace, const RouterSpec& router, DType dtype, std::int64_t tokens,
                              std::int64_t hidden) {
  if (!router.weight_on_input) return;
  index = workspace.add(DType::i32, {tokens, 1});
  weights = workspace.add(dtype, {tokens, 1});
  x = workspace.add(dtype, {tokens, hidden});
}

WeightedInput::WeightedInput(StreamView stream, const RouterSpec& router, const Layout& layout, BufferView workspace,
                             TensorView input, TensorView router_weights)
    : x(input), weights(router_weights) {
  if (!router.weight_on_input) return;
  const TensorView column = tensor_in(workspace, layout.index);
  const TensorView identity(column.buffer, DType::i32, {input.shape[0]});
  index_vectors::enqueue(stream, index_vectors::ColumnOrder{column});
  if (input.dtype != DType::f32) {
    weights = tensor_in(workspace, layout.weights);
    gather_rows::enqueue(stream, {router_weights, identity, 1, {}, 0, weights});
  }
  // A combine of one row a token is that product, rounded once.
  combine::Args product;
  product.rows = input;
  product.slot_rows = identity;
  product.weights = weights;
  product.out = x = tensor_in(workspace, layout.x);
  combine::enqueue(stream, product);
  weights = {};
}

}  // namespace moecl
