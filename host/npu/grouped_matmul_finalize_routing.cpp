#include <moecl/scatter_add.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/product.hpp"

namespace moecl::npu {
namespace {

WeightShape weights_of(const GroupedMatmulFinalizeRoutingArgs& args) {
  if (args.x.present() && args.x.dtype != DType::i8)
    fail(ErrorCode::unsupported, "x: expected i8, got {}", args.x.describe());
  require(args.x.rank == 2, "x: expected i8 [M, K], got {}", args.x);
  return shape_of_weights({args.weight}, args.x.shape[1]);
}

void compose(Steps& steps, const GroupedMatmulFinalizeRoutingArgs& args) {
  const WeightShape weights = weights_of(args);
  const std::int64_t rows = args.x.shape[0], tokens = args.y.shape[0];
  Product product;
  product.x = args.x;
  product.weight = {args.weight};
  product.scale = list_of(args.scale);
  product.bias = list_of(args.bias);
  product.x_scale = args.pertoken_scale;
  product.row_ends = ends_of(steps, args.group_list, args.group_list_type, weights.experts, rows);
  scatter_add::Args add;
  add.rows = steps.scratch(DType::f32, {rows, weights.n});
  run_product(steps, product, add.rows);
  add.destinations = args.row_index;
  add.row_ends = product.row_ends;
  add.weights = args.logit;
  add.shared = args.shared_input;
  add.shared_scale = static_cast<float>(args.shared_input_weight);
  add.shared_token = args.shared_input.present() ? args.shared_input_offset : 0;
  add.out = args.y;
  add.fault = steps.fault();
  add.scratch = steps.scratch_bytes(scatter_add::scratch_bytes(rows, tokens, steps.caps()));
  steps.run(add);
}

}  // namespace

void infer(GroupedMatmulFinalizeRoutingArgs& args) {
  const WeightShape weights = weights_of(args);
  require(args.group_list_type == 0 || args.group_list_type == 1, "group_list_type: {} is not in [0, 1]",
          args.group_list_type);
  require(args.output_bs >= 0, "output_bs: {} is negative", args.output_bs);
  const DType dtype = args.dtype.value_or(DType::f32);
  require(is_activation_dtype(dtype), "dtype: expected f32, f16 or bf16, got {}", name(dtype));
  const std::int64_t tokens = args.output_bs != 0 ? args.output_bs : args.x.shape[0];
  if (args.shared_input.present()) {
    const std::int64_t shared = args.shared_input.rank == 2 ? args.shared_input.shape[0] : 0;
    require(args.shared_input.rank == 2 && args.shared_input.shape[1] == weights.n && args.shared_input_offset >= 0 &&
                args.shared_input_offset <= tokens - shared,
            "shared_input: expected [n, {}] from row {} within {} rows, got {}", weights.n, args.shared_input_offset,
            tokens, args.shared_input);
  }
  set_shape(args.y, dtype, {tokens, weights.n});
}

std::uint64_t workspace_bytes(const GroupedMatmulFinalizeRoutingArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const GroupedMatmulFinalizeRoutingArgs& args) {
  const WeightShape weights = weights_of(args);
  return product_cost(args, args.x.shape[0], weights.k, weights.n);
}

void grouped_matmul_finalize_routing(StreamView stream, const GroupedMatmulFinalizeRoutingArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
