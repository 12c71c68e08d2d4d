#include <moecl/quantize_rows.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/quantize/quantize_rows_args.h"
#include "kernels_cl/quantize/row_rounding.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource quantize_rows;
}

namespace moecl::quantize_rows {
namespace {

static_assert(ROUNDING_DIVIDE == static_cast<int>(Rounding::divide));
static_assert(ROUNDING_DIVIDE_SCALED == static_cast<int>(Rounding::divide_scaled));
static_assert(ROUNDING_MULTIPLY_RECIPROCAL == static_cast<int>(Rounding::multiply_reciprocal));
static_assert(ROUNDING_MULTIPLY_127_BY_AMAX == static_cast<int>(Rounding::multiply_127_by_amax));
static_assert(ROUNDING_MULTIPLY_127_BY_AMAX_SCALED == static_cast<int>(Rounding::multiply_127_by_amax_scaled));
static_assert(ROUNDING_DIVIDE_TIES_AWAY == static_cast<int>(Rounding::divide_ties_away));
static_assert(ROUNDING_MULTIPLY_RECIPROCAL_F16 == static_cast<int>(Rounding::multiply_reciprocal_f16));
static_assert(ROUNDING_DIVIDE_SCALED_F16 == static_cast<int>(Rounding::divide_scaled_f16));

const char* name_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::symmetric:
      return "symmetric";
    case Scheme::asymmetric:
      return "asymmetric";
    case Scheme::static_f16:
      break;
  }
  return "static_f16";
}

std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 0; }

std::string reject_parameters(const Args& args, std::int64_t rows) {
  if (args.group != 0) {
    if (args.group != 8 || args.scheme != Scheme::symmetric || args.q.dtype != DType::i8 || args.x.shape[1] % 8 != 0)
      return fmt::format("group: expected 0, or 8 for symmetric int8 rows of whole groups, got {} for {}", args.group,
                         args.x.describe());
    if (args.scale.rank != 2 || !is_activation_dtype(args.scale.dtype) || !args.scale.contiguous() ||
        args.scale.shape[0] != rows || args.scale.shape[1] != args.x.shape[1] / 8)
      return fmt::format("scale: expected float [{}, {}], got {}", rows, args.x.shape[1] / 8, args.scale.describe());
    return args.offset.present() ? fmt::format("offset: a symmetric row has none, got {}", args.offset.describe()) : "";
  }
  const bool is_static = args.scheme == Scheme::static_f16;
  const std::int64_t count = is_static ? 1 : rows;
  const auto is_vector = [&](const TensorView& view) {
    return view.rank == 1 && view.dtype == DType::f32 && view.shape[0] == count;
  };
  if (!is_vector(args.scale)) return fmt::format("scale: expected f32[{}], got {}", count, args.scale.describe());
  if (args.scheme == Scheme::symmetric)
    return args.offset.present() ? fmt::format("offset: a symmetric row has none, got {}", args.offset.describe()) : "";
  return is_vector(args.offset) ? "" : fmt::format("offset: expected f32[{}], got {}", count, args.offset.describe());
}

bool packed(const Args& args) { return args.q.dtype == DType::i32; }

quantize_rows_args kernel_args(const Args& args) {
  return {.x_first = first_element(args.x),
          .index_first = first_element(args.index),
          .row_ends_first = first_element(args.row_ends),
          .smooth_first = first_element(args.smooth),
          .smooth_rows_first = first_element(args.smooth_rows),
          .q_first = first_element(args.q),
          .scale_first = first_element(args.scale),
          .offset_first = first_element(args.offset),
          .x_stride = args.x.stride[0],
          .smooth_stride = expert_stride(args.smooth),
          .q_stride = args.q.stride[0],
          .rows_per_expert = args.rows_per_expert,
          .rows = int_of(args.x.shape[0]),
          .width = int_of(args.x.shape[1]),
          .divisor = args.divisor,
          .experts = int_of(experts_of(args)),
          .rounding = static_cast<std::int32_t>(args.rounding),
          .levels = packed(args) ? 7.0F : 127.0F};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [N, H], got {}", args.x.describe());
  if (args.index.present() && (args.index.rank != 1 || args.index.dtype != DType::i32))
    return fmt::format("index: expected i32[R], got {}", args.index.describe());
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  const std::int64_t rows = args.index.present() ? args.index.shape[0] : args.x.shape[0], hidden = args.x.shape[1];
  if (packed(args) && hidden % 8 != 0)
    return fmt::format("x: int4 codes are packed by eight, but rows have {} columns", hidden);
  if (args.q.rank != 2 || (args.q.dtype != DType::i8 && !packed(args)) || args.q.shape[0] != rows ||
      args.q.shape[1] != (packed(args) ? hidden / 8 : hidden))
    return fmt::format("q: expected i8[{}, {}] or i32[{}, {}], got {}", rows, hidden, rows, hidden / 8,
                       args.q.describe());
  if (std::string reason = reject_parameters(args, rows); !reason.empty()) return reason;
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows); !reason.empty()) return reason;
  const std::int64_t smooth_experts = args.smooth_rows.present() ? args.smooth.shape[0] : experts_of(args);
  if (std::string reason = reject_column_values("smooth", args.smooth, hidden, smooth_experts); !reason.empty())
    return reason;
  if (args.smooth_rows.present() &&
      (!args.index.present() || args.smooth_rows.rank != 1 || args.smooth_rows.dtype != DType::i32 ||
       args.smooth_rows.shape[0] != args.x.shape[0] * args.divisor))
    return fmt::format("smooth_rows: expected i32[{}] beside index, got {}", args.x.shape[0] * args.divisor,
                       args.smooth_rows.describe());
  if (args.smooth.present() && !is_activation_dtype(args.smooth.dtype))
    return fmt::format("smooth: expected float, got {}", args.smooth.describe());
  if (std::string reason = reject_width("x", hidden); !reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "quantize_rows: {}", reason);
  const std::int32_t lanes = tuned_lanes("quantize_rows", config.lanes, device);
  const auto local = static_cast<std::size_t>(lanes);
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          fmt::format("-DLANES={} -DSCHEME={} -DSTATIC={} -DGROUPED={}{}{}{}{}{}", lanes, name_of(args.scheme),
                      args.scheme == Scheme::static_f16 ? 1 : 0, args.group == 0 ? 0 : 1,
                      dtype_option("X_DTYPE", args.x), dtype_option("SMOOTH_DTYPE", args.smooth),
                      dtype_option("SCALE_DTYPE", args.scale), packed(args) ? " -DQ_DTYPE=i4x8" : " -DQ_DTYPE=i8",
                      packed(args) || args.group != 0 ? " -DNEIGHBOURS=1" : ""),
          {static_cast<std::size_t>(args.q.shape[0]) * local, 1, 1},
          {local, 1, 1},
          fmt::format("{} {} to {}", name_of(args.scheme), args.x.describe(), packed(args) ? "int4" : "int8"),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::quantize_rows, "quantize_rows", plan, submit, args.x, args.index, args.row_ends,
                 args.smooth, args.smooth_rows, args.q, args.scale, args.offset, kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const auto made = [&] { return plan(args, config, *stream.device); };
  enqueue(stream,
          *kept_plan(stream, source::quantize_rows, made, args.x, args.row_ends, args.rows_per_expert, args.q,
                     args.scale, args.scheme, args.offset, args.smooth, args.index, args.divisor, args.smooth_rows,
                     args.group, config.lanes),
          args, submit);
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.q.shape[0]) * static_cast<std::uint64_t>(args.x.shape[1]);
  std::uint64_t bytes = elements * size_bytes(args.x.dtype) + args.q.size_bytes();
  for (const TensorView& view : {args.scale, args.offset, args.smooth, args.index})
    if (view.present()) bytes += view.size_bytes();
  // A comparison, a division and a rounding for each element.
  return {bytes, 3 * elements};
}

}  // namespace moecl::quantize_rows
