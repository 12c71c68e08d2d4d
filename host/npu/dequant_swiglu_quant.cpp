#include <moecl/gated_activation.hpp>
#include <moecl/group_list.hpp>

#include <cmath>

#include "host/npu/call.hpp"
#include "host/npu/describe_activation.hpp"

namespace moecl::npu {
namespace {

template <class Args>
void infer_codes(Args& args) {
  require(args.x.rank >= 2 && (is_activation_dtype(args.x.dtype) || args.x.dtype == DType::i32),
          "x: expected [..., 2H] of i32, f16, bf16 or f32, got {}", args.x);
  std::vector<std::int64_t> shape = shape_of(args.x);
  require(shape.back() % 2 == 0, "x: the last dimension of {} cannot be halved", args.x);
  require(args.quant_mode == 0 || args.quant_mode == 1, "quant_mode: {} is neither 0 nor 1", args.quant_mode);
  shape.back() /= 2;
  set_shape(args.y, DType::i8, shape);
  shape.pop_back();
  args.scale.rank = 0;
  if (args.quant_mode == 1) set_shape(args.scale, DType::f32, shape);
}

Activation activation_of(const DequantSwigluQuantArgs& args) {
  Activation activation;
  activation.gate_is_right = args.swiglu_mode == 0 && !args.activate_left;
  if (args.swiglu_mode == 0) return activation;
  activation.function = ActivationFunction::swigluoai;
  activation.interleaved = args.swiglu_mode == 1;
  return activation;
}
Activation activation_of(const CAscendDequantSwigluQuantArgs& args) {
  Activation activation;
  activation.gate_is_right = !args.activate_left;
  if (args.swiglu_mode == 1) activation.function = ActivationFunction::swigluoai;
  return activation;
}

template <class Args>
gated_activation::Args kernel_of(const Args& args) {
  gated_activation::Args kernel;
  kernel.x = as_rows(args.x);
  kernel.out = as_rows(args.y);
  kernel.activation = activation_of(args);
  kernel.activation.alpha = static_cast<float>(args.glu_alpha);
  kernel.activation.limit = static_cast<float>(args.clamp_limit);
  kernel.activation.bias = static_cast<float>(args.glu_bias);
  kernel.rounding = quantize_rows::Rounding::divide_scaled;
  kernel.column_scale = args.weight_scale;
  if (!args.group_index.present()) kernel.bias = args.bias;
  kernel.quant_scale = args.quant_scale;
  kernel.quant_offset = args.quant_offset;
  if (args.scale.present()) kernel.scale = reshaped(args.scale, {args.scale.elements()});
  if (args.activation_scale.present())
    kernel.row_scale = reshaped(args.activation_scale, {args.activation_scale.elements()});
  return kernel;
}

template <class Args>
void compose(Steps& steps, const Args& args) {
  gated_activation::Args kernel = kernel_of(args);
  const bool integers = args.x.dtype == DType::i32;
  require(!integers || args.weight_scale.present(), "weight_scale: i32 rows need it");
  require(integers || (!args.weight_scale.present() && !args.activation_scale.present() && !args.bias.present()),
          "x: {} rows are dequantized already: weight_scale, activation_scale and bias belong to i32",
          name(args.x.dtype));
  require(args.quant_mode == 1 || args.quant_scale.present(), "quant_scale: quant_mode 0 needs it");
  require(std::isfinite(args.glu_alpha) && std::isfinite(args.glu_bias),
          "glu_alpha, glu_bias: {} and {} are not finite", args.glu_alpha, args.glu_bias);
  if (args.group_index.present()) {
    require(args.group_index.rank == 1 && args.group_index.shape[0] >= 1, "group_index: expected [G], got {}",
            args.group_index);
    kernel.row_ends = steps.scratch(DType::i32, {args.group_index.shape[0]});
    steps.run(group_list::Read{args.group_index, group_list::Kind::counts, kernel.x.shape[0], false, kernel.row_ends,
                               steps.fault()});
  }
  steps.run(kernel);
}

}  // namespace

void infer(DequantSwigluQuantArgs& args) {
  infer_codes(args);
  if (args.dst_type != DequantSwigluType::int8) fail(ErrorCode::unsupported, "dst_type: only int8 is supported");
  if (args.round_mode != RoundMode::rint) fail(ErrorCode::unsupported, "round_mode: only rint is supported");
  if (args.activate_dim != -1 && args.activate_dim != args.x.rank - 1)
    fail(ErrorCode::unsupported, "activate_dim: {} is not the last of {}", args.activate_dim, args.x.describe());
  require(args.swiglu_mode >= 0 && args.swiglu_mode <= 2, "swiglu_mode: {} is not in [0, 2]", args.swiglu_mode);
  require(args.clamp_limit > 0 && std::isfinite(args.clamp_limit), "clamp_limit: {} is not above 0", args.clamp_limit);
}
void infer(CAscendDequantSwigluQuantArgs& args) {
  infer_codes(args);
  require(args.swiglu_mode == 0 || args.swiglu_mode == 1, "swiglu_mode: {} is neither 0 nor 1", args.swiglu_mode);
}

std::uint64_t workspace_bytes(const DequantSwigluQuantArgs& args, const Device& device) {
  return measure(args, device, compose<DequantSwigluQuantArgs>);
}
std::uint64_t workspace_bytes(const CAscendDequantSwigluQuantArgs& args, const Device& device) {
  return measure(args, device, compose<CAscendDequantSwigluQuantArgs>);
}

OperatorCost cost(const DequantSwigluQuantArgs& args) { return gated_activation::cost(kernel_of(args)); }
OperatorCost cost(const CAscendDequantSwigluQuantArgs& args) { return gated_activation::cost(kernel_of(args)); }

void dequant_swiglu_quant(StreamView stream, const DequantSwigluQuantArgs& args, const Call& how) {
  call(stream, args, how, compose<DequantSwigluQuantArgs>);
}
void c_ascend_dequant_swiglu_quant(StreamView stream, const CAscendDequantSwigluQuantArgs& args, const Call& how) {
  call(stream, args, how, compose<CAscendDequantSwigluQuantArgs>);
}

}  // namespace moecl::npu
