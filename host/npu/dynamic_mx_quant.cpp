#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/mx_quantize.hpp>

#include <functional>
#include <numeric>

#include "host/npu/call.hpp"
#include "host/npu/describe_quant.hpp"

namespace moecl::npu {
namespace {

bool is_fp4(MxType type) { return type == MxType::float4_e2m1fn_x2 || type == MxType::float4_e1m2fn_x2; }

Minifloat format_of(MxType type) {
  switch (type) {
    case MxType::float4_e2m1fn_x2:
      return fp4_e2m1;
    case MxType::float4_e1m2fn_x2:
      return fp4_e1m2;
    case MxType::float8_e4m3fn:
      return fp8_e4m3fn;
    case MxType::float8_e5m2:
      break;
  }
  return fp8_e5m2;
}

mx_quantize::Rounding rounding_of(RoundMode mode) {
  switch (mode) {
    case RoundMode::rint:
      return mx_quantize::Rounding::halves_to_even;
    case RoundMode::floor:
      return mx_quantize::Rounding::downward;
    case RoundMode::round:
      return mx_quantize::Rounding::halves_away;
    case RoundMode::ceil:
    case RoundMode::trunc:
      break;
  }
  fail(ErrorCode::invalid_argument, "round_mode: codes are rounded by rint, floor or round");
}

/// Checks the axis, and counts it from the first dimension.
std::size_t axis_of(const DynamicMxQuantArgs& args) {
  require(args.axis >= -args.x.rank && args.axis < args.x.rank, "axis: {} is outside [{}, {})", args.axis, -args.x.rank,
          args.x.rank);
  return static_cast<std::size_t>(args.axis < 0 ? args.axis + args.x.rank : args.axis);
}

/// The tensors as the kernel sees them: [before the axis, axis, after it].
mx_quantize::Args kernel_of(const DynamicMxQuantArgs& args) {
  const std::vector<std::int64_t> shape = shape_of(args.x);
  const auto axis = shape.begin() + static_cast<std::ptrdiff_t>(axis_of(args));
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>());
  };
  const std::int64_t before = product(shape.begin(), axis), length = *axis, after = product(axis + 1, shape.end());
  const std::int64_t codes = is_fp4(args.dst_type) ? 2 : 1;  // codes in a byte
  const bool last = axis + 1 == shape.end();
  mx_quantize::Args kernel;
  kernel.x = reshaped(args.x, {before, length, after});
  kernel.format = format_of(args.dst_type);
  kernel.y = reshaped(args.y, {before, last ? length / codes : length, last ? 1 : after / codes});
  kernel.scale = reshaped(args.mxscale, {before, (length + 63) / 64, after, 2});
  if (args.scale_alg == 1) kernel.scale_rule = mx_quantize::ScaleRule::ceil_ratio;
  kernel.rounding = rounding_of(args.round_mode);
  return kernel;
}

void compose(Steps& steps, const DynamicMxQuantArgs& args) { steps.run(kernel_of(args)); }

}  // namespace

void infer(DynamicMxQuantArgs& args) {
  require(args.x.rank >= 1 && is_activation_dtype(args.x.dtype), "x: expected f16, bf16 or f32, got {}", args.x);
  if (args.x.rank >= TensorView::max_rank)
    fail(ErrorCode::unsupported, "x: {} has more than three dimensions, which are not supported", args.x.describe());
  if (args.block_size != 32) fail(ErrorCode::unsupported, "block_size: {} is not supported, only 32", args.block_size);
  const bool fp4 = is_fp4(args.dst_type);
  require(args.scale_alg == 0 || args.scale_alg == 1, "scale_alg: {} is neither 0 nor 1", args.scale_alg);
  require(!fp4 || args.scale_alg == 0, "scale_alg: 1 is for fp8, but dst_type is fp4");
  require(rounding_of(args.round_mode) == mx_quantize::Rounding::halves_to_even || fp4,
          "round_mode: fp8 is rounded by rint alone");
  const std::size_t axis = axis_of(args);
  std::vector<std::int64_t> shape = shape_of(args.x);
  std::vector<std::int64_t> scales = shape;
  scales[axis] = (shape[axis] + 63) / 64;
  scales.push_back(2);
  if (fp4) {
    require(shape.back() % 2 == 0, "x: fp4 codes are packed by two, but the last dimension is {}", shape.back());
    shape.back() /= 2;
  }
  set_shape(args.y, DType::u8, shape);
  set_shape(args.mxscale, DType::u8, scales);
}

std::uint64_t workspace_bytes(const DynamicMxQuantArgs& args, const Device& device) {
  return measure(args, device, compose);
}

OperatorCost cost(const DynamicMxQuantArgs& args) { return mx_quantize::cost(kernel_of(args)); }

void dynamic_mx_quant(StreamView stream, const DynamicMxQuantArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
