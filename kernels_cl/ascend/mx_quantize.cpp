#include <moecl/mx_quantize.hpp>

#include <cmath>

#include "kernels_cl/ascend/mx_quantize_args.h"
#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource mx_quantize;
}

namespace moecl::mx_quantize {
namespace {

constexpr std::int64_t block = MX_BLOCK, group_blocks = MX_GROUP_BLOCKS;

static_assert(FLOOR_AMAX == static_cast<int>(ScaleRule::floor_amax));
static_assert(CEIL_RATIO == static_cast<int>(ScaleRule::ceil_ratio));
static_assert(HALVES_TO_EVEN == static_cast<int>(Rounding::halves_to_even));
static_assert(HALVES_AWAY == static_cast<int>(Rounding::halves_away));
static_assert(DOWNWARD == static_cast<int>(Rounding::downward));

bool packed(const Args& args) { return args.format.bits() == 4; }
std::int64_t rows_of(const Args& args) { return args.index.present() ? args.index.shape[0] : args.x.shape[0]; }

/// Whether `view` is u8 of this shape, with any stride between rows.
bool is_bytes(const TensorView& view, std::initializer_list<std::int64_t> shape) {
  if (view.dtype != DType::u8 || view.rank != static_cast<int>(shape.size())) return false;
  if (!std::equal(shape.begin(), shape.end(), view.shape.begin())) return false;
  return view.elements() == 0 || view.rows(0, 1).contiguous();
}

mx_quantize_args kernel_args(const Args& args) {
  const Minifloat& format = args.format;
  return {.x_first = first_element(args.x),
          .index_first = first_element(args.index),
          .row_ends_first = first_element(args.row_ends),
          .y_first = first_element(args.y),
          .scale_first = first_element(args.scale),
          .x_stride = args.x.stride[0],
          .y_stride = args.y.stride[0],
          .scale_stride = args.scale.stride[0],
          .rows_per_expert = args.rows_per_expert,
          .inner = args.x.shape[2],
          .rows = int_of(args.x.shape[0]),
          .divisor = args.divisor,
          .experts = int_of(args.row_ends.present() ? args.row_ends.shape[0] : 0),
          .length = int_of(args.x.shape[1]),
          .bits = format.bits(),
          .mantissa_bits = format.mantissa_bits,
          .min_exponent = format.min_exponent,
          .largest = format.largest,
          .scale_rule = static_cast<std::int32_t>(args.scale_rule),
          .rounding = static_cast<std::int32_t>(args.rounding),
          .least_scale = args.least_scale,
          .least_amax = args.least_amax};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 3 || !is_activation_dtype(args.x.dtype) ||
      (args.x.elements() != 0 && !args.x.rows(0, 1).contiguous()))
    return fmt::format("x: expected float [N, L, I] with contiguous [L, I], got {}", args.x.describe());
  if (args.index.present() && (args.index.rank != 1 || args.index.dtype != DType::i32))
    return fmt::format("index: expected i32[R], got {}", args.index.describe());
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  if (args.format.bits() < 4 || args.format.bits() > 8 || args.format.mantissa_bits < 1)
    return fmt::format("format: {} bits with {} of mantissa, possible are 4 to 8 with at least 1", args.format.bits(),
                       args.format.mantissa_bits);
  const std::int64_t rows = rows_of(args), length = args.x.shape[1], inner = args.x.shape[2];
  std::int64_t y_length = length, y_inner = inner;
  if (packed(args)) {
    std::int64_t& last = inner == 1 ? y_length : y_inner;
    if (last % 2 != 0) return fmt::format("x: codes are packed by two, but the last axis has {} elements", last);
    last /= 2;
  }
  if (!is_bytes(args.y, {rows, y_length, y_inner}))
    return fmt::format("y: expected u8[{}, {}, {}], got {}", rows, y_length, y_inner, args.y.describe());
  const std::int64_t pairs = quotient_up(length, 2 * block);
  if (!is_bytes(args.scale, {rows, pairs, inner, 2}))
    return fmt::format("scale: expected u8[{}, {}, {}, 2], got {}", rows, pairs, inner, args.scale.describe());
  if (args.least_scale < 0 || args.least_scale > 254)
    return fmt::format("least_scale: {} is outside [0, 254]", args.least_scale);
  if (!(args.least_amax >= 0) || std::isinf(args.least_amax))
    return fmt::format("least_amax: {} is negative or not finite", args.least_amax);
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows); !reason.empty()) return reason;
  if (std::string reason = reject_width("x", length); !reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "mx_quantize: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, device.caps);
  const auto local = static_cast<std::size_t>(lanes);
  const std::int64_t length = args.x.shape[1], inner = args.x.shape[2];
  const std::int64_t units = quotient_up(length, block) * (packed(args) && inner > 1 ? inner / 2 : inner);
  const auto groups = static_cast<std::size_t>(rows_of(args) * quotient_up(units, group_blocks));
  return {lanes == 1 ? "blocks_per_item" : "block_per_item",
          fmt::format("-DLANES={} -DZEROS_STAY={}{}", lanes, args.zeros_stay ? 1 : 0, dtype_option("X_DTYPE", args.x)),
          {groups * local, 1, 1},
          {local, 1, 1},
          fmt::format("{} to {} bits", args.x.describe(), args.format.bits()),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::mx_quantize, "mx_quantize", plan, submit, args.x, args.index, args.row_ends, args.y,
                 args.scale, kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  enqueue(stream, plan(args, config, *stream.device), args, submit);
}

OperatorCost cost(const Args& args) {
  const std::int64_t elements = rows_of(args) * args.x.shape[1] * args.x.shape[2];
  const auto count = static_cast<std::uint64_t>(elements);
  // A comparison, a division and a rounding for each element.
  return {count * size_bytes(args.x.dtype) + args.y.size_bytes() + args.scale.size_bytes() + args.index.size_bytes(),
          3 * count};
}

}  // namespace moecl::mx_quantize
