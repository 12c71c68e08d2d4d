#include "host/layer/weighted_input.hpp"

#include <moecl/combine.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>

namespace moecl {

WeightedInput::Layout::Layout(WorkspaceLayout& workspace, const RouterSpec& router, DType dtype, std::int64_t tokens,
                              std::int64_t hidden) {
  const auto scaled = static_cast<std::uint64_t>(router.weight_on_input ? tokens : 0);
  index = workspace.add(scaled * size_bytes(DType::i32));
  weights = workspace.add(scaled * size_bytes(dtype));
  x = workspace.add(scaled * static_cast<std::uint64_t>(hidden) * size_bytes(dtype));
}

WeightedInput::WeightedInput(StreamView stream, const RouterSpec& router, const Layout& layout, BufferView workspace,
                             TensorView input, TensorView router_weights)
    : x(input), weights(router_weights) {
  if (!router.weight_on_input) return;
  const auto at = [&](std::uint64_t offset, DType dtype, std::int64_t columns) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(input.shape[0] * columns) * size_bytes(dtype);
    return TensorView(workspace.slice(offset, bytes), dtype, {input.shape[0], columns});
  };
  const TensorView column = at(layout.index, DType::i32, 1);
  const TensorView identity(column.buffer, DType::i32, {input.shape[0]});
  index_vectors::enqueue(stream, index_vectors::ColumnOrder{column});
  if (input.dtype != DType::f32) {
    weights = at(layout.weights, input.dtype, 1);
    gather_rows::enqueue(stream, {router_weights, identity, 1, {}, 0, weights});
  }
  // A combine of one row a token is that product, rounded once.
  combine::Args product;
  product.rows = input;
  product.slot_rows = identity;
  product.weights = weights;
  product.out = x = at(layout.x, input.dtype, input.shape[1]);
  combine::enqueue(stream, product);
  weights = {};
}

}  // namespace moecl
