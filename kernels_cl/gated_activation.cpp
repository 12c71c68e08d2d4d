#include <moecl/gated_activation.hpp>

#include "kernels_cl/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource gated_activation;
}

namespace moecl::gated_activation {
namespace {

const char* name_of(ActivationFunction function) {
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
      break;
  }
  return "relu2";
}

}  // namespace

std::string reject(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [R, {}], got {}", args.activation.gated ? "2I" : "I", args.x.describe());
  if (args.activation.gated && args.x.shape[1] % 2 != 0)
    return fmt::format("x: a gated activation halves the width, but it is odd: {}", args.x.describe());
  const std::int64_t rows = args.x.shape[0], width = args.activation.gated ? args.x.shape[1] / 2 : args.x.shape[1];
  const bool out_dtype_ok = args.scale.present() ? args.out.dtype == DType::i8 : is_activation_dtype(args.out.dtype);
  if (args.out.rank != 2 || args.out.shape[0] != rows || args.out.shape[1] != width || !out_dtype_ok)
    return fmt::format("out: expected {} [{}, {}], got {}", args.scale.present() ? "i8" : "float", rows, width,
                       args.out.describe());
  if (args.scale.present() && (args.scale.rank != 1 || args.scale.dtype != DType::f32 || args.scale.shape[0] != rows))
    return fmt::format("scale: expected f32[{}], got {}", rows, args.scale.describe());
  if (!args.activation.gated && args.activation.function == ActivationFunction::swigluoai)
    return "activation: swigluoai is always gated";
  if (!args.activation.gated && args.activation.interleaved)
    return "activation: only gated ones have columns to interleave";
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows); !reason.empty()) return reason;
  if (std::string reason = reject_width("x", args.x.shape[1]); !reason.empty()) return reason;
  return reject_lanes(config.lanes, caps);
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const std::string reason = reject(args, config, stream.device->caps);
  require(reason.empty(), "gated_activation: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, stream.device->caps);
  const auto local = static_cast<std::size_t>(lanes);
  const std::int64_t rows = args.out.shape[0], width = args.out.shape[1];
  const Activation& activation = args.activation;
  const OperatorCost work = cost(args);
  const std::string options =
      fmt::format("-DLANES={} -DFUNCTION={} -DQUANTIZE={}{}{}", lanes, name_of(activation.function),
                  args.scale.present() ? 1 : 0, dtype_option("X_DTYPE", args.x), dtype_option("OUT_DTYPE", args.out));
  launch(
      stream, {&source::gated_activation, options, "gated_activation"},
      {{static_cast<std::size_t>(rows) * local, args.scale.present() ? 1 : row_groups(lanes, width), 1}, {local, 1, 1}},
      submit,
      {"gated_activation", lanes == 1 ? "row_per_item" : "row_per_group",
       fmt::format("{} {}", name_of(activation.function), args.out.describe()), work.bytes, work.flops},
      args.x, args.row_ends, args.out, args.scale, args.x.stride[0], args.out.stride[0],
      static_cast<std::int32_t>(width), static_cast<std::int32_t>(args.row_ends.present() ? args.row_ends.shape[0] : 0),
      args.rows_per_expert, std::int32_t{activation.gated}, std::int32_t{activation.interleaved}, activation.alpha,
      activation.limit);
}

OperatorCost cost(const Args& args) {
  constexpr std::uint64_t flops_per_element =
      5;  // silu: negate, exponential, add, divide, two products; the others are near
  const std::uint64_t scale_bytes = args.scale.present() ? args.scale.size_bytes() : 0;
  return {args.x.size_bytes() + args.out.size_bytes() + scale_bytes,
          flops_per_element * static_cast<std::uint64_t>(args.out.elements())};
}

}  // namespace moecl::gated_activation
