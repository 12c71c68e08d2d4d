#include <moecl/gated_activation.hpp>

#include <algorithm>

#include "host/npu/call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/mx_product.hpp"
#include "host/npu/product.hpp"

namespace moecl::npu {
namespace {

constexpr std::int64_t most_experts = 1024, most_listed_experts = 128;

/// Whether x and weight pair up: one product for each tensor of x, without groups.
bool pairs_up(const GroupedMatmulArgs& args) { return args.group_type == -1 || args.x.size() > 1; }
bool gives_list(const GroupedMatmulArgs& args) { return args.split_item < 2; }

DType output_dtype(const GroupedMatmulArgs& args) { return args.output_dtype.value_or(args.x.front().dtype); }

std::optional<ActivationFunction> activation_of(const GroupedMatmulArgs& args) {
  switch (args.act_type) {
    case 0:
      return std::nullopt;
    case 1:
      return ActivationFunction::relu;
    case 2:
      return ActivationFunction::gelu_tanh;
    case 4:
      return ActivationFunction::fast_gelu;
    case 5:
      return ActivationFunction::silu;
    default:
      fail(ErrorCode::invalid_argument, "act_type: {} is none of 0, 1, 2, 4, 5", args.act_type);
  }
}

/// The element of `list` for product i. The list has one tensor for each product.
TensorList element(const char* name, const TensorList& list, std::size_t i, std::size_t products) {
  if (list.empty()) return {};
  require(list.size() == products, "{}: expected {} tensors as x, got {}", name, products, list.size());
  return {list[i]};
}

Product product_of(const GroupedMatmulArgs& args, std::size_t i) {
  const bool all = !pairs_up(args);
  const std::size_t count = args.x.size();
  const auto pick = [&](const char* name, const TensorList& list) {
    return all ? list : element(name, list, i, count);
  };
  Product product;
  product.x = as_rows(args.x[i]);
  product.weight = pick("weight", args.weight);
  product.scale = pick("scale", args.scale);
  product.offset = pick("offset", args.offset);
  product.antiquant_scale = pick("antiquant_scale", args.antiquant_scale);
  product.antiquant_offset = pick("antiquant_offset", args.antiquant_offset);
  product.bias = pick("bias", args.bias);
  const TensorList row_scale = element("per_token_scale", args.per_token_scale, i, count);
  if (!row_scale.empty()) product.x_scale = row_scale.front();
  return product;
}

void run_activated(Steps& steps, const GroupedMatmulArgs& args, const Product& product, const TensorView& out) {
  const std::optional<ActivationFunction> function = activation_of(args);
  if (!function) return run_product(steps, product, out);
  require(product.x_scale.present() && is_activation_dtype(out.dtype),
          "act_type: {} needs per_token_scale and a float output, got {}", args.act_type, out);
  gated_activation::Args activation;
  activation.x = steps.scratch(DType::f32, {out.shape[0], out.shape[1]});
  run_product(steps, product, activation.x);
  activation.row_ends = product.row_ends;
  activation.activation.function = *function;
  activation.activation.gated = false;
  activation.out = out;
  steps.run(activation);
}

void compose(Steps& steps, const GroupedMatmulArgs& args) {
  if (is_mx(args))
    return run_mx_product(
        steps, args,
        ends_of(steps, args.group_list, args.group_list_type, args.weight.front().shape[0], args.x.front().shape[0]));
  if (pairs_up(args)) {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < args.x.size(); ++i) {
      const Product product = product_of(args, i);
      const std::int64_t rows = product.x.shape[0];
      run_activated(steps, args, product, gives_list(args) ? as_rows(args.y[i]) : args.y.front().rows(first, rows));
      first += rows;
    }
    return;
  }
  Product product = product_of(args, 0);
  if (args.group_type == 2) {
    const TensorView& y = args.y.front();
    product.k_ends = ends_of(steps, args.group_list, args.group_list_type, y.shape[0], product.x.shape[1]);
    return run_product(steps, product, as_rows(y));
  }
  product.row_ends = ends_of(steps, args.group_list, args.group_list_type,
                             shape_of_weights(args.weight, product.x.shape[1]).experts, product.x.shape[0]);
  run_activated(steps, args, product, args.y.front());
}

/// Groups along K: the group list is the only operand besides x and weight.
void infer_k_groups(GroupedMatmulArgs& args, const WeightShape& weights) {
  require(!gives_list(args), "split_item: expected 2 or 3 with group_type 2, got {}", args.split_item);
  require(weights.experts == 1 && is_activation_dtype(args.x.front().dtype) && is_activation_dtype(weights.dtype) &&
              args.bias.empty() && args.act_type == 0,
          "group_type: 2 takes one float x and weight without bias and activation, got {} and {}", args.x.front(),
          args.weight.front());
  if (args.group_list_type == 2) fail(ErrorCode::unsupported, "group_list_type: 2 is not supported with group_type 2");
  require(args.group_list.rank == 1, "group_list: expected [E], got {}", args.group_list);
  set_shape(args.y.front(), output_dtype(args), {args.group_list.shape[0], args.x.front().shape[0], weights.n});
}

}  // namespace

void infer(GroupedMatmulArgs& args) {
  require(!args.x.empty(), "x: is needed");
  require(args.group_type == -1 || args.group_type == 0 || args.group_type == 2, "group_type: {} is none of -1, 0, 2",
          args.group_type);
  require(args.split_item >= 0 && args.split_item <= 3, "split_item: {} is not in [0, 3]", args.split_item);
  require(!args.weight.empty(), "weight: is needed");
  if (is_mx(args)) return infer_mx(args);
  require(args.scale_dtype == CodeType::none && args.per_token_scale_dtype == CodeType::none,
          "scale_dtype, per_token_scale_dtype: are for codes, which x_dtype and weight_dtype name");
  const bool i8 = args.x.front().dtype == DType::i8;
  for (const TensorView& x : args.x) {
    if (x.present() && x.dtype != DType::i8 && !is_activation_dtype(x.dtype))
      fail(ErrorCode::unsupported, "x: expected f32, f16, bf16 or i8, got {}", x.describe());
    require(x.rank == 2 || (x.rank > 2 && args.group_type == -1), "x: expected [M, K], got {}", x);
    require(x.dtype == args.x.front().dtype, "x: expected {} in the whole list, got {}", name(args.x.front().dtype), x);
  }
  const DType dtype = output_dtype(args);
  require(i8 ? is_activation_dtype(dtype) || dtype == DType::i8 || dtype == DType::i32 : is_activation_dtype(dtype),
          "output_dtype: expected {}, got {}", i8 ? "i8, f16, bf16, f32 or i32" : "f32, f16 or bf16", name(dtype));
  activation_of(args);

  const auto k_of = [](const TensorView& x) { return x.shape[x.rank - 1]; };
  if (!pairs_up(args)) {
    const WeightShape weights = shape_of_weights(args.weight, k_of(args.x.front()));
    args.y.resize(1);
    if (args.group_type == 2) return infer_k_groups(args, weights);
    if (gives_list(args))
      fail(ErrorCode::unsupported,
           "split_item: {} would give outputs whose lengths only the device knows; one x takes 2 or 3",
           args.split_item);
    const std::int64_t most = args.weight.size() > 1 ? most_listed_experts : most_experts;
    require(weights.experts >= 1 && weights.experts <= most, "weight: {} experts are not in [1, {}]", weights.experts,
            most);
    return set_shape(args.y.front(), dtype, {args.x.front().shape[0], weights.n});
  }

  require(args.group_type != 2, "x: group_type 2 takes one tensor, got {}", args.x.size());
  require(args.weight.size() == args.x.size(), "weight: expected {} tensors as x, got {}", args.x.size(),
          args.weight.size());
  require(args.x.size() <= static_cast<std::size_t>(most_listed_experts), "x: {} tensors, at most {}", args.x.size(),
          most_listed_experts);
  args.y.resize(gives_list(args) ? args.x.size() : 1);
  std::int64_t rows = 0, columns = 0;
  for (std::size_t i = 0; i < args.x.size(); ++i) {
    require(args.weight[i].rank == 2, "weight: expected [K, N] for each x, got {}", args.weight[i]);
    std::vector<std::int64_t> shape = shape_of(args.x[i]);
    const std::int64_t n = shape_of_weights({args.weight[i]}, shape.back()).n;
    require(gives_list(args) || i == 0 || n == columns, "weight: one y needs {} columns of each, got {}", columns,
            args.weight[i]);
    columns = n;
    rows += args.x[i].elements() / std::max<std::int64_t>(shape.back(), 1);
    shape.back() = n;
    if (gives_list(args)) set_shape(args.y[i], dtype, shape);
  }
  if (!gives_list(args)) set_shape(args.y.front(), dtype, {rows, columns});
}

std::uint64_t workspace_bytes(const GroupedMatmulArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const GroupedMatmulArgs& args) {
  OperatorCost total = product_cost(args, 0, 0, 0);
  if (is_mx(args)) {
    const TensorView &x = args.x.front(), &weight = args.weight.front();
    total.flops = 2 * static_cast<std::uint64_t>(x.shape[0]) * static_cast<std::uint64_t>(weight.shape[1]) *
                  static_cast<std::uint64_t>(args.y.front().shape[1]);
    return total;
  }
  for (std::size_t i = 0; i < args.x.size(); ++i) {
    const TensorView& x = args.x[i];
    const WeightShape weights =
        shape_of_weights(pairs_up(args) ? TensorList{args.weight[i]} : args.weight, x.shape[x.rank - 1]);
    total.flops += 2 * static_cast<std::uint64_t>(x.elements()) * static_cast<std::uint64_t>(weights.n);
  }
  return total;
}

void grouped_matmul(StreamView stream, const GroupedMatmulArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
