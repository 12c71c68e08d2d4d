#include <moecl/row_differences.hpp>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/quantize/row_differences_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource row_differences;
}

namespace moecl::row_differences {
namespace {

row_differences_args kernel_args(const Args& args) {
  return {.x_first = first_element(args.x),
          .y_first = first_element(args.y),
          .out_first = first_element(args.out),
          .x_stride = args.x.stride[0],
          .y_stride = args.y.stride[0],
          .width = static_cast<std::int32_t>(args.x.shape[1]),
          .pad = 0};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [N, K], got {}", args.x.describe());
  const std::int64_t rows = args.x.shape[0], width = args.x.shape[1];
  if (args.y.rank != 2 || !is_activation_dtype(args.y.dtype) || args.y.shape != args.x.shape)
    return fmt::format("y: expected float [{}, {}], got {}", rows, width, args.y.describe());
  if (args.out.rank != 2 || args.out.dtype != DType::f32 || args.out.shape[0] != rows || args.out.shape[1] != 4 ||
      !args.out.contiguous())
    return fmt::format("out: expected contiguous f32 [{}, 4], got {}", rows, args.out.describe());
  if (std::string reason = reject_width("x", width); !reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "row_differences: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, device.caps);
  const auto local = static_cast<std::size_t>(lanes), rows = static_cast<std::size_t>(args.x.shape[0]);
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          fmt::format("-DLANES={}{}{}", lanes, dtype_option("X_DTYPE", args.x), dtype_option("Y_DTYPE", args.y)),
          {rows * local, 1, 1},
          {local, 1, 1},
          args.x.describe(),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::row_differences, "row_differences", plan, submit, args.x, args.y, args.out,
                 kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  enqueue(stream, plan(args, config, *stream.device), args, submit);
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.x.elements());
  return {elements * (size_bytes(args.x.dtype) + size_bytes(args.y.dtype)) + args.out.size_bytes(), 5 * elements};
}

}  // namespace moecl::row_differences
