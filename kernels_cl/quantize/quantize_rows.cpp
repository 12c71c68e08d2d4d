#include <moecl/quantize_rows.hpp>

#include <cmath>
#include <limits>

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
      return "static_f16";
    case Scheme::given:
      break;
  }
  return "given";
}

/// The kernel's name of a float format.
const char* name_of(Codes codes) {
  switch (codes) {
    case Codes::e4m3:
      return "e4m3";
    case Codes::e5m2:
      return "e5m2";
    case Codes::hif8:
      return "hif8";
    case Codes::integer:
      break;
  }
  return "none";
}

std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 0; }

bool is_floats(const Args& args) { return args.codes != Codes::integer; }
/// int4 codes per element of q; 1: the codes are not int4.
std::int64_t packed(const Args& args) {
  return args.q.dtype == DType::i32 ? 8 : args.q.dtype == DType::u8 && !is_floats(args) ? 2 : 1;
}

/// The number that the largest code stands for.
float levels(const Args& args) {
  switch (args.codes) {
    case Codes::e4m3:
      return 448;
    case Codes::e5m2:
      return 57344;
    case Codes::hif8:
      // Without a scale, numbers are only converted. Those beyond the largest number become infinity.
      return args.scheme == Scheme::given && !args.scale.present() ? std::numeric_limits<float>::infinity() : 32768;
    case Codes::integer:
      break;
  }
  return packed(args) > 1 ? 7 : 127;
}

std::string reject_floats(const Args& args, std::int64_t rows) {
  if (args.scheme != Scheme::symmetric && args.scheme != Scheme::given)
    return fmt::format("scheme: floats are symmetric or given, not {}", name_of(args.scheme));
  const bool of_f16 = args.rounding == Rounding::multiply_reciprocal_f16 ||
                      args.rounding == Rounding::divide_scaled_f16 || args.rounding == Rounding::divide_ties_away;
  if (of_f16) return "rounding: floats round once, as their format does";
  if (args.group == 0) return "";
  const std::int64_t groups = (args.x.shape[1] + 127) / 128;
  if (args.group != 128 || args.scheme != Scheme::symmetric)
    return fmt::format("group: expected 0, or 128 for symmetric floats, got {}", args.group);
  if (args.scale.rank != 2 || args.scale.dtype != DType::f32 || !args.scale.contiguous() ||
      args.scale.shape[0] != rows || args.scale.shape[1] < groups)
    return fmt::format("scale: expected f32[{}, {} or more], got {}", rows, groups, args.scale.describe());
  return args.offset.present() ? fmt::format("offset: a symmetric row has none, got {}", args.offset.describe()) : "";
}

std::string reject_limits(const Args& args) {
  if (!(args.least_amax >= 0) || std::isinf(args.least_amax))
    return fmt::format("least_amax: {} is negative or not finite", args.least_amax);
  if ((args.power_of_two || args.least_amax > 0) && (args.group != 128 || args.rounding != Rounding::divide))
    return "power_of_two, least_amax: they go with groups of 128 and Rounding::divide";
  return "";
}

std::string reject_parameters(const Args& args, std::int64_t rows) {
  if (std::string reason = reject_limits(args); !reason.empty()) return reason;
  if (is_floats(args)) {
    if (std::string reason = reject_floats(args, rows); !reason.empty()) return reason;
    if (args.group != 0) return "";
  } else if (args.group != 0) {
    if (args.group != 8 || args.scheme != Scheme::symmetric || args.q.dtype != DType::i8 || args.x.shape[1] % 8 != 0)
      return fmt::format("group: expected 0, or 8 for symmetric int8 rows of whole groups, got {} for {}", args.group,
                         args.x.describe());
    if (args.scale.rank != 2 || !is_activation_dtype(args.scale.dtype) || !args.scale.contiguous() ||
        args.scale.shape[0] != rows || args.scale.shape[1] != args.x.shape[1] / 8)
      return fmt::format("scale: expected float [{}, {}], got {}", rows, args.x.shape[1] / 8, args.scale.describe());
    return args.offset.present() ? fmt::format("offset: a symmetric row has none, got {}", args.offset.describe()) : "";
  }
  const bool is_given = args.scheme == Scheme::given;
  const std::int64_t count = is_given || args.scheme == Scheme::static_f16 ? 1 : rows;
  const auto is_vector = [&](const TensorView& view) {
    return view.rank == 1 && view.dtype == DType::f32 && view.shape[0] == count;
  };
  if (!is_vector(args.scale) && !(is_given && !args.scale.present()))
    return fmt::format("scale: expected f32[{}], got {}", count, args.scale.describe());
  if (args.scheme == Scheme::symmetric || is_given)
    return args.offset.present()
               ? fmt::format("offset: a {} row has none, got {}", name_of(args.scheme), args.offset.describe())
               : "";
  return is_vector(args.offset) ? "" : fmt::format("offset: expected f32[{}], got {}", count, args.offset.describe());
}

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
          .scale_columns = args.group == 128 ? int_of(args.scale.shape[1]) : 0,
          .levels = levels(args),
          .least_amax = args.least_amax};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [N, H], got {}", args.x.describe());
  if (args.index.present() && (args.index.rank != 1 || args.index.dtype != DType::i32))
    return fmt::format("index: expected i32[R], got {}", args.index.describe());
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  const std::int64_t rows = args.index.present() ? args.index.shape[0] : args.x.shape[0], hidden = args.x.shape[1];
  if (hidden % packed(args) != 0)
    return fmt::format("x: int4 codes are packed by {}, but rows have {} columns", packed(args) == 8 ? "eight" : "two",
                       hidden);
  const bool wanted = is_floats(args) ? args.q.dtype == DType::u8 : args.q.dtype == DType::i8 || packed(args) > 1;
  if (args.q.rank != 2 || !wanted || args.q.shape[0] != rows || args.q.shape[1] != hidden / packed(args) ||
      args.q.stride[1] != 1)
    return is_floats(args) ? fmt::format("q: expected u8[{}, {}], got {}", rows, hidden, args.q.describe())
                           : fmt::format("q: expected i8[{}, {}], i32[{}, {}] or u8[{}, {}], got {}", rows, hidden,
                                         rows, hidden / 8, rows, hidden / 2, args.q.describe());
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
          fmt::format("-DLANES={} -DSCHEME={} -DSTATIC={} -DIS_GIVEN={} -DGROUP={} -DIS_FLOATS={} -DFLOATS={} "
                      "-DPOWER_OF_TWO={}{}{}{}{}{}",
                      lanes, name_of(args.scheme), args.scheme == Scheme::static_f16 ? 1 : 0,
                      args.scheme == Scheme::given ? 1 : 0, args.group, is_floats(args) ? 1 : 0, name_of(args.codes),
                      args.power_of_two ? 1 : 0, dtype_option("X_DTYPE", args.x),
                      dtype_option("SMOOTH_DTYPE", args.smooth), dtype_option("SCALE_DTYPE", args.scale),
                      is_floats(args)     ? " -DQ_DTYPE=u8"
                      : packed(args) == 8 ? " -DQ_DTYPE=i4x8"
                      : packed(args) == 2 ? " -DQ_DTYPE=i4x2"
                                          : " -DQ_DTYPE=i8",
                      packed(args) > 1 || args.group != 0 ? " -DNEIGHBOURS=1" : ""),
          {static_cast<std::size_t>(args.q.shape[0]) * local, 1, 1},
          {local, 1, 1},
          fmt::format("{} {} to {}", name_of(args.scheme), args.x.describe(),
                      is_floats(args)    ? name_of(args.codes)
                      : packed(args) > 1 ? "int4"
                                         : "int8"),
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
                     args.group, args.rounding, args.codes, args.power_of_two, args.least_amax, config.lanes),
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
