#include <moecl/group_list.hpp>
#include <moecl/quantize_rows.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_quant.hpp"

namespace moecl::npu {
namespace {

/// Sets y and scale.
template <class Args>
void infer_row_codes(Args& args) {
  require(args.x.rank >= 2 && is_activation_dtype(args.x.dtype), "x: expected [..., H] of f16, bf16 or f32, got {}",
          args.x);
  std::vector<std::int64_t> shape = shape_of(args.x);
  if (args.dst_type == QuantType::int8) {
    set_shape(args.y, DType::i8, shape);
  } else if (args.dst_type == QuantType::quint4x2) {
    require(shape.back() % 8 == 0, "x: int4 codes are packed by eight, but rows have {} columns", shape.back());
    shape.back() /= 8;
    set_shape(args.y, DType::i32, shape);
  } else {
    if (std::is_same_v<Args, DynamicQuantAsymmetricArgs>)
      fail(ErrorCode::unsupported, "dst_type: {} is not supported",
           quant_types[static_cast<std::size_t>(args.dst_type)]);
    set_shape(args.y, DType::u8, shape);
  }
  shape.pop_back();
  set_shape(args.scale, DType::f32, shape);
}

template <class Args>
quantize_rows::Args row_kernel_of(const Args& args) {
  quantize_rows::Args kernel;
  kernel.x = as_rows(args.x);
  kernel.q = as_rows(args.y);
  kernel.scale = reshaped(args.scale, {args.scale.elements()});
  kernel.smooth = args.smooth_scales;
  return kernel;
}

/// The group of a row selects its smooth vector. Rows past the last group are not quantized.
template <class Args>
void run(Steps& steps, const Args& args, quantize_rows::Args kernel) {
  if (args.group_index.present()) {
    require(args.group_index.rank == 1 && args.group_index.shape[0] >= 1, "group_index: expected [G], got {}",
            args.group_index);
    const std::int64_t groups = args.group_index.shape[0];
    require(args.smooth_scales.rank == 2 && args.smooth_scales.shape[0] == groups,
            "smooth_scales: expected [{}, H] for the groups of group_index, got {}", groups, args.smooth_scales);
    kernel.row_ends = steps.scratch(DType::i32, {groups});
    steps.run(group_list::Read{args.group_index, group_list::Kind::cumsum, kernel.x.shape[0], true, kernel.row_ends,
                               steps.fault()});
  }
  steps.run(kernel);
}

quantize_rows::Rounding rule_of(DynamicQuantRounding rounding) {
  switch (rounding) {
    case DynamicQuantRounding::divide:
      return quantize_rows::Rounding::divide;
    case DynamicQuantRounding::divide_by_mulscale:
      return quantize_rows::Rounding::divide_scaled;
    case DynamicQuantRounding::plain_template:
      return quantize_rows::Rounding::multiply_127_by_amax;
    case DynamicQuantRounding::multirow_template:
      break;
  }
  return quantize_rows::Rounding::multiply_127_by_amax_scaled;
}

void compose(Steps& steps, const DynamicQuantArgs& args) {
  quantize_rows::Args kernel = row_kernel_of(args);
  kernel.rounding = rule_of(args.rounding);
  if (args.dst_type == QuantType::float8_e4m3fn) kernel.codes = quantize_rows::Codes::e4m3;
  if (args.dst_type == QuantType::float8_e5m2) kernel.codes = quantize_rows::Codes::e5m2;
  run(steps, args, kernel);
}
void compose_asymmetric(Steps& steps, const DynamicQuantAsymmetricArgs& args) {
  quantize_rows::Args kernel = row_kernel_of(args);
  kernel.scheme = quantize_rows::Scheme::asymmetric;
  kernel.offset = reshaped(args.offset, {args.offset.elements()});
  run(steps, args, kernel);
}

}  // namespace

void infer(DynamicQuantArgs& args) { infer_row_codes(args); }
void infer(DynamicQuantAsymmetricArgs& args) {
  infer_row_codes(args);
  set_shape(args.offset, DType::f32, shape_of(args.scale));
}

std::uint64_t workspace_bytes(const DynamicQuantArgs& args, const Device& device) {
  return measure(args, device, compose);
}
std::uint64_t workspace_bytes(const DynamicQuantAsymmetricArgs& args, const Device& device) {
  return measure(args, device, compose_asymmetric);
}

OperatorCost cost(const DynamicQuantArgs& args) { return quantize_rows::cost(row_kernel_of(args)); }
OperatorCost cost(const DynamicQuantAsymmetricArgs& args) { return quantize_rows::cost(row_kernel_of(args)); }

void dynamic_quant(StreamView stream, const DynamicQuantArgs& args, const Call& how) {
  call(stream, args, how, compose);
}
void dynamic_quant_asymmetric(StreamView stream, const DynamicQuantAsymmetricArgs& args, const Call& how) {
  call(stream, args, how, compose_asymmetric);
}

}  // namespace moecl::npu
