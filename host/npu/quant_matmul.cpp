#include "host/npu/call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/product.hpp"

namespace moecl::npu {
namespace {

std::int64_t k_of(const QuantMatmulArgs& args) { return args.x1.shape[args.x1.rank - 1]; }

void compose(Steps& steps, const QuantMatmulArgs& args) {
  Product product;
  product.x = as_rows(args.x1);
  product.weight = {args.x2};
  product.scale = list_of(args.scale);
  product.offset = list_of(args.offset);
  product.bias = list_of(args.bias);
  product.assist = false;
  product.x_scale = args.pertoken_scale;
  run_product(steps, product, as_rows(args.y));
}

}  // namespace

void infer(QuantMatmulArgs& args) {
  if (args.x1.present() && args.x1.dtype == DType::i32)
    fail(ErrorCode::unsupported, "x1: expected i8 [..., M, K], got {}: no product of two int4", args.x1.describe());
  require(args.x1.rank >= 2 && args.x1.dtype == DType::i8, "x1: expected i8 [..., M, K], got {}", args.x1);
  if (args.x2.rank > 2)
    fail(ErrorCode::unsupported, "x2: batches of matrices are not supported, got {}", args.x2.describe());
  const WeightShape weights = shape_of_weights({args.x2}, k_of(args));
  require(weights.dtype == DType::i8 || weights.dtype == DType::i32, "x2: expected i8 or int4 in i32, got {}", args.x2);
  const DType dtype = args.output_dtype.value_or(DType::i8);
  require(is_activation_dtype(dtype) || dtype == DType::i8 || dtype == DType::i32,
          "output_dtype: expected i8, f16, bf16, f32 or i32, got {}", name(dtype));
  std::vector<std::int64_t> shape = shape_of(args.x1);
  shape.back() = weights.n;
  set_shape(args.y, dtype, shape);
}

std::uint64_t workspace_bytes(const QuantMatmulArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const QuantMatmulArgs& args) {
  const std::int64_t k = k_of(args);
  return product_cost(args, k == 0 ? 0 : args.x1.elements() / k, k, shape_of_weights({args.x2}, k).n);
}

void quant_matmul(StreamView stream, const QuantMatmulArgs& args, const Call& how) { call(stream, args, how, compose); }

}  // namespace moecl::npu
