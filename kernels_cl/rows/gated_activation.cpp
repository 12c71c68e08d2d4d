#include <moecl/gated_activation.hpp>

#include <limits>
#include <utility>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/rows/gated_activation_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource gated_activation;
}

namespace moecl {

const char* name(ActivationFunction function) noexcept {
  switch (function) {
    case ActivationFunction::silu:
      return "silu";
    case ActivationFunction::gelu:
      return "gelu";
    case ActivationFunction::gelu_tanh:
      return "gelu_tanh";
    case ActivationFunction::swigluoai:
      return "swigluoai";
    case ActivationFunction::relu2:
      return "relu2";
    case ActivationFunction::relu:
      return "relu";
    case ActivationFunction::fast_gelu:
      break;
  }
  return "fast_gelu";
}

float Activation::effective_limit() const noexcept {
  return limit > 0.0F ? limit : std::numeric_limits<float>::infinity();
}

std::string Activation::reject() const {
  if (gated) return {};
  if (function == ActivationFunction::swigluoai) return "activation: swigluoai is always gated";
  if (interleaved || gate_is_right) return "activation: only gated ones have columns to interleave or halves to swap";
  return {};
}

}  // namespace moecl

namespace moecl::gated_activation {
namespace {

bool is_scalar(const TensorView& view) { return view.present() && view.elements() == 1; }
bool is_quantized(const Args& args) { return args.scale.present() || args.quant_scale.present(); }
std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 0; }

std::string reject_dequantization(const Args& args) {
  const std::int64_t width = args.x.shape[1], rows = args.x.shape[0];
  for (const auto& [what, view] : {std::pair{"column_scale", args.column_scale}, {"bias", args.bias}})
    if (std::string reason = reject_column_values(what, view, width, experts_of(args)); !reason.empty()) return reason;
  if (args.column_scale.present() && args.column_scale.dtype != DType::f32)
    return fmt::format("column_scale: expected f32, got {}", args.column_scale.describe());
  if (args.bias.present() && !is_activation_dtype(args.bias.dtype) &&
      (args.bias.dtype != DType::i32 || args.x.dtype != DType::i32))
    return fmt::format("bias: expected float, or i32 beside i32 rows, got {} beside {}", args.bias.describe(),
                       name(args.x.dtype));
  if (args.row_scale.present() &&
      (args.row_scale.rank != 1 || args.row_scale.dtype != DType::f32 || args.row_scale.shape[0] != rows))
    return fmt::format("row_scale: expected f32[{}], got {}", rows, args.row_scale.describe());
  return {};
}

std::string reject_quantization(const Args& args) {
  const std::int64_t rows = args.out.shape[0], width = args.out.shape[1];
  if (args.scale.present() && (args.scale.rank != 1 || args.scale.dtype != DType::f32 || args.scale.shape[0] != rows))
    return fmt::format("scale: expected f32[{}], got {}", rows, args.scale.describe());
  for (const auto& [what, view] : {std::pair{"quant_scale", args.quant_scale}, {"quant_offset", args.quant_offset}}) {
    if (!view.present()) continue;
    if (view.dtype != DType::f32) return fmt::format("{}: expected f32, got {}", what, view.describe());
    if (is_scalar(view)) continue;
    if (std::string reason = reject_column_values(what, view, width, experts_of(args)); !reason.empty()) return reason;
  }
  if (!args.quant_offset.present()) return {};
  if (args.scale.present() || !args.quant_scale.present())
    return "quant_offset: only codes of a given quant_scale, without a scale of the row, have an offset";
  if (is_scalar(args.quant_offset) != is_scalar(args.quant_scale))
    return fmt::format("quant_offset: expected the shape of quant_scale, {}, got {}", args.quant_scale.describe(),
                       args.quant_offset.describe());
  return {};
}

gated_activation_args kernel_args(const Args& args) {
  const Activation& activation = args.activation;
  return {.x_first = first_element(args.x),
          .row_ends_first = first_element(args.row_ends),
          .column_scale_first = first_element(args.column_scale),
          .row_scale_first = first_element(args.row_scale),
          .bias_first = first_element(args.bias),
          .quant_scale_first = first_element(args.quant_scale),
          .quant_offset_first = first_element(args.quant_offset),
          .out_first = first_element(args.out),
          .scale_first = first_element(args.scale),
          .x_stride = args.x.stride[0],
          .column_scale_stride = expert_stride(args.column_scale),
          .bias_stride = expert_stride(args.bias),
          .quant_scale_stride = expert_stride(args.quant_scale),
          .quant_offset_stride = expert_stride(args.quant_offset),
          .out_stride = args.out.stride[0],
          .rows_per_expert = args.rows_per_expert,
          .width = int_of(args.out.shape[1]),
          .experts = int_of(experts_of(args)),
          .gated = activation.gated,
          .gate_is_right = activation.gate_is_right,
          .scalar_quant = is_scalar(args.quant_scale),
          .rounding = static_cast<std::int32_t>(args.rounding),
          .pad = 0,
          .alpha = activation.alpha,
          .limit = activation.effective_limit(),
          .up_bias = activation.bias};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 2 || (!is_activation_dtype(args.x.dtype) && args.x.dtype != DType::i32))
    return fmt::format("x: expected float or i32 [R, {}], got {}", args.activation.gated ? "2I" : "I",
                       args.x.describe());
  if (args.activation.gated && args.x.shape[1] % 2 != 0)
    return fmt::format("x: a gated activation halves the width, but it is odd: {}", args.x.describe());
  const std::int64_t rows = args.x.shape[0], width = args.activation.gated ? args.x.shape[1] / 2 : args.x.shape[1];
  const bool out_dtype_ok = is_quantized(args) ? args.out.dtype == DType::i8 : is_activation_dtype(args.out.dtype);
  if (args.out.rank != 2 || args.out.shape[0] != rows || args.out.shape[1] != width || !out_dtype_ok)
    return fmt::format("out: expected {} [{}, {}], got {}", is_quantized(args) ? "i8" : "float", rows, width,
                       args.out.describe());
  if (std::string reason = args.activation.reject(); !reason.empty()) return reason;
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows); !reason.empty()) return reason;
  if (std::string reason = reject_dequantization(args); !reason.empty()) return reason;
  if (std::string reason = reject_quantization(args); !reason.empty()) return reason;
  if (std::string reason = reject_width("x", args.x.shape[1]); !reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "gated_activation: {}", reason);
  const std::int32_t lanes = tuned_lanes("gated_activation", config.lanes, device);
  const auto local = static_cast<std::size_t>(lanes);
  const std::int64_t rows = args.out.shape[0], width = args.out.shape[1];
  const Activation& activation = args.activation;
  const int codes = args.scale.present() ? DYNAMIC_CODES : args.quant_scale.present() ? STATIC_CODES : NO_CODES;
  const bool dequantize = args.column_scale.present() || args.row_scale.present() || args.bias.present();
  const std::string options =
      fmt::format("-DLANES={} -DFUNCTION={} -DQUANTIZE={} -DINTERLEAVED={} -DDEQUANTIZE={} -DBIAS_IS_I32={}{}{}{}",
                  lanes, name(activation.function), codes, activation.interleaved ? 1 : 0, dequantize ? 1 : 0,
                  args.bias.dtype == DType::i32 ? 1 : 0, dtype_option("BIAS_DTYPE", args.bias),
                  dtype_option("X_DTYPE", args.x), dtype_option("OUT_DTYPE", args.out));
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          options,
          {static_cast<std::size_t>(rows) * local, args.scale.present() ? 1 : row_groups(lanes, width), 1},
          {local, 1, 1},
          fmt::format("{} {}", name(activation.function), args.out.describe()),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::gated_activation, "gated_activation", plan, submit, args.x, args.row_ends,
                 args.column_scale, args.row_scale, args.bias, args.quant_scale, args.quant_offset, args.out,
                 args.scale, kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  enqueue(stream, plan(args, config, *stream.device), args, submit);
}

OperatorCost cost(const Args& args) {
  constexpr std::uint64_t flops_per_element =
      5;  // silu: negate, exponential, add, divide, two products; the others cost about as much
  std::uint64_t bytes = args.x.size_bytes() + args.out.size_bytes();
  for (const TensorView& view :
       {args.scale, args.column_scale, args.row_scale, args.bias, args.quant_scale, args.quant_offset})
    if (view.present()) bytes += view.size_bytes();
  return {bytes, flops_per_element * static_cast<std::uint64_t>(args.out.elements())};
}

}  // namespace moecl::gated_activation
