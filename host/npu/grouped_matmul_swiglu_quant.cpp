#include <moecl/gated_activation.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/product.hpp"

namespace moecl::npu {
namespace {

/// The arguments of the three operators in one form.
struct Form {
  Product product;
  TensorView group_list, smooth_scale;
  std::int64_t group_list_type = 0;
  double limit = 0;
  SwigluQuantRounding rounding = SwigluQuantRounding::reciprocal;
  TensorView output, output_scale;
};

Form form_of(const GroupedMatmulSwigluQuantArgs& args) {
  Form form;
  form.product.x = args.x;
  form.product.weight = {args.weight};
  form.product.scale = list_of(args.weight_scale);
  form.product.bias = list_of(args.bias);
  form.product.x_scale = args.x_scale;
  form.group_list = args.group_list;
  form.rounding = args.rounding;
  form.output = args.output;
  form.output_scale = args.output_scale;
  return form;
}

Form form_of(const CAscendGroupedMatmulSwigluQuantArgs& args) {
  GroupedMatmulSwigluQuantArgs plain;
  plain.x = args.x;
  plain.weight = args.weight;
  plain.group_list = args.group_list;
  plain.weight_scale = args.weight_scale;
  plain.x_scale = args.x_scale;
  plain.bias = args.bias;
  plain.rounding = args.rounding;
  plain.output = args.output;
  plain.output_scale = args.output_scale;
  Form form = form_of(plain);
  form.limit = args.swiglu_limit;
  return form;
}

Form form_of(const GroupedMatmulSwigluQuantV2Args& args) {
  Form form;
  form.product.x = args.x;
  form.product.weight = args.weight;
  form.product.scale = args.weight_scale;
  form.product.bias = args.weight_assist_matrix.empty() ? list_of(args.bias) : args.weight_assist_matrix;
  form.product.x_scale = args.x_scale;
  form.group_list = args.group_list;
  form.smooth_scale = args.smooth_scale;
  form.group_list_type = args.group_list_type;
  form.rounding = args.rounding;
  form.output = args.output;
  form.output_scale = args.output_scale;
  return form;
}

WeightShape weights_of(const Form& form) {
  const TensorView& x = form.product.x;
  if (x.present() && x.dtype != DType::i8) fail(ErrorCode::unsupported, "x: expected i8, got {}", x.describe());
  require(x.rank == 2, "x: expected i8 [M, K], got {}", x);
  const WeightShape weights = shape_of_weights(form.product.weight, x.shape[1]);
  require(weights.n % 2 == 0, "weight: expected an even number of columns, gate and up, got {}", weights.n);
  return weights;
}

void infer_outputs(const Form& form, TensorView& output, TensorView& output_scale) {
  const std::int64_t rows = form.product.x.shape[0];
  set_shape(output, DType::i8, {rows, weights_of(form).n / 2});
  set_shape(output_scale, DType::f32, {rows});
}

void run(Steps& steps, Form form) {
  const WeightShape weights = weights_of(form);
  const std::int64_t rows = form.product.x.shape[0];
  require(form.product.x_scale.present(), "x_scale: is needed");
  require(form.product.bias.empty() || weights.dtype == DType::i32 || form.product.bias.front().dtype == DType::i32,
          "bias: expected none or i32 beside i8 weights, got {}",
          form.product.bias.empty() ? "" : form.product.bias.front().describe());
  form.product.row_ends = ends_of(steps, form.group_list, form.group_list_type, weights.experts, rows);
  gated_activation::Args activation;
  activation.x = steps.scratch(DType::f32, {rows, weights.n});
  run_product(steps, form.product, activation.x);
  activation.row_ends = form.product.row_ends;
  if (form.limit > 0) {
    // With alpha 1 and bias 0 this is silu(gate) * up, both clamped.
    activation.activation.function = ActivationFunction::swigluoai;
    activation.activation.alpha = 1;
    activation.activation.bias = 0;
    activation.activation.limit = static_cast<float>(form.limit);
  }
  activation.quant_scale = form.smooth_scale;
  activation.rounding = form.rounding == SwigluQuantRounding::reciprocal
                            ? quantize_rows::Rounding::multiply_127_by_amax
                            : quantize_rows::Rounding::multiply_reciprocal_f16;
  activation.out = form.output;
  activation.scale = form.output_scale;
  steps.run(activation);
}

template <class Args>
void compose_product(Steps& steps, const Args& args) {
  run(steps, form_of(args));
}

template <class Args>
OperatorCost product_cost_of(const Args& args) {
  const WeightShape weights = weights_of(form_of(args));
  return product_cost(args, args.x.shape[0], weights.k, weights.n);
}

}  // namespace

void infer(GroupedMatmulSwigluQuantArgs& args) { infer_outputs(form_of(args), args.output, args.output_scale); }
void infer(CAscendGroupedMatmulSwigluQuantArgs& args) { infer_outputs(form_of(args), args.output, args.output_scale); }
void infer(GroupedMatmulSwigluQuantV2Args& args) {
  if (args.dequant_mode == 2 || args.quant_mode == 2)
    fail(ErrorCode::unsupported, "dequant_mode {}, quant_mode {}: MX types are not supported", args.dequant_mode,
         args.quant_mode);
  require(args.dequant_mode == 0 || args.dequant_mode == 1, "dequant_mode: {} is not in [0, 2]", args.dequant_mode);
  require(args.quant_mode == 0, "quant_mode: {} is none of 0 and 2", args.quant_mode);
  require(args.group_list_type == 0 || args.group_list_type == 1, "group_list_type: {} is not in [0, 1]",
          args.group_list_type);
  require(args.weight_assist_matrix.empty() || !args.bias.present(),
          "bias: is of i8 weights, weight_assist_matrix of int4 weights; got both");
  infer_outputs(form_of(args), args.output, args.output_scale);
}

std::uint64_t workspace_bytes(const GroupedMatmulSwigluQuantArgs& args, const Device& device) {
  return measure(args, device, compose_product<GroupedMatmulSwigluQuantArgs>);
}
std::uint64_t workspace_bytes(const CAscendGroupedMatmulSwigluQuantArgs& args, const Device& device) {
  return measure(args, device, compose_product<CAscendGroupedMatmulSwigluQuantArgs>);
}
std::uint64_t workspace_bytes(const GroupedMatmulSwigluQuantV2Args& args, const Device& device) {
  return measure(args, device, compose_product<GroupedMatmulSwigluQuantV2Args>);
}

OperatorCost cost(const GroupedMatmulSwigluQuantArgs& args) { return product_cost_of(args); }
OperatorCost cost(const CAscendGroupedMatmulSwigluQuantArgs& args) { return product_cost_of(args); }
OperatorCost cost(const GroupedMatmulSwigluQuantV2Args& args) { return product_cost_of(args); }

void grouped_matmul_swiglu_quant(StreamView stream, const GroupedMatmulSwigluQuantArgs& args, const Call& how) {
  call(stream, args, how, compose_product<GroupedMatmulSwigluQuantArgs>);
}
void c_ascend_grouped_matmul_swiglu_quant(StreamView stream, const CAscendGroupedMatmulSwigluQuantArgs& args,
                                          const Call& how) {
  call(stream, args, how, compose_product<CAscendGroupedMatmulSwigluQuantArgs>);
}
void grouped_matmul_swiglu_quant_v2(StreamView stream, const GroupedMatmulSwigluQuantV2Args& args, const Call& how) {
  call(stream, args, how, compose_product<GroupedMatmulSwigluQuantV2Args>);
}

}  // namespace moecl::npu
