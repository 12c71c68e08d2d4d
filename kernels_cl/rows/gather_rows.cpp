#include <moecl/gather_rows.hpp>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/rows/gather_rows_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource gather_rows;
}

namespace moecl::gather_rows {

std::string reject(const Args& args, const Config& config, const Device& device) {
  const auto float_or_i8 = [](DType dtype) { return is_activation_dtype(dtype) || dtype == DType::i8; };
  if (args.x.rank != 2 || !float_or_i8(args.x.dtype))
    return fmt::format("x: expected float or i8 [N, H], got {}", args.x.describe());
  if (args.index.rank != 1 || args.index.dtype != DType::i32)
    return fmt::format("index: expected i32[R], got {}", args.index.describe());
  if (args.out.rank != 2 || args.out.shape[0] != args.index.shape[0] || args.out.shape[1] != args.x.shape[1] ||
      !float_or_i8(args.out.dtype) || (args.out.dtype == DType::i8) != (args.x.dtype == DType::i8))
    return fmt::format("out: expected [{}, {}] of a type that {} converts to, got {}", args.index.shape[0],
                       args.x.shape[1], name(args.x.dtype), args.out.describe());
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, args.index.shape[0]); !reason.empty())
    return reason;
  if (std::string reason = reject_width("x", args.x.shape[1]); !reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

namespace {

gather_rows_args kernel_args(const Args& args) {
  return {.x_first = first_element(args.x),
          .index_first = first_element(args.index),
          .row_ends_first = first_element(args.row_ends),
          .out_first = first_element(args.out),
          .x_stride = args.x.stride[0],
          .out_stride = args.out.stride[0],
          .rows_per_expert = args.rows_per_expert,
          .rows = static_cast<std::int32_t>(args.x.shape[0]),
          .hidden = static_cast<std::int32_t>(args.x.shape[1]),
          .divisor = args.divisor,
          .experts = static_cast<std::int32_t>(args.row_ends.present() ? args.row_ends.shape[0] : 0)};
}

}  // namespace

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "gather_rows: {}", reason);
  const std::int32_t lanes = tuned_lanes("gather_rows", config.lanes, device);
  const auto local = static_cast<std::size_t>(lanes), rows = static_cast<std::size_t>(args.index.shape[0]);
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          fmt::format("-DLANES={}{}{}{}", lanes, dtype_option("X_DTYPE", args.x), dtype_option("OUT_DTYPE", args.out),
                      fours_option(lanes, {&args.x, &args.out})),
          {rows * local, row_groups(lanes, args.x.shape[1]), 1},
          {local, 1, 1},
          args.out.describe(),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::gather_rows, "gather_rows", plan, submit, args.x, args.index, args.row_ends, args.out,
                 kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const auto made = [&] { return plan(args, config, *stream.device); };
  enqueue(stream,
          *kept_plan(stream, source::gather_rows, made, args.x, args.index, args.divisor, args.row_ends,
                     args.rows_per_expert, args.out, config.lanes),
          args, submit);
}

OperatorCost cost(const Args& args) {
  const auto rows = static_cast<std::uint64_t>(args.index.shape[0]);
  const std::uint64_t row = static_cast<std::uint64_t>(args.x.shape[1]);
  return {rows * (4 + row * (size_bytes(args.x.dtype) + size_bytes(args.out.dtype))), 0};
}

}  // namespace moecl::gather_rows
