#include "kernels_cl/quantize/quantize_groups.hpp"

#include <moecl/quantize_groups.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/quantize/quantize_groups_args.h"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource quantize_groups;
}

namespace moecl::quantize_groups {
namespace {

static_assert(RULE_RATIO == static_cast<int>(ScaleRule::ratio));
static_assert(RULE_POWER_OF_TWO == static_cast<int>(ScaleRule::power_of_two));
static_assert(RULE_MX_FLOOR == static_cast<int>(ScaleRule::mx_floor));
static_assert(RULE_MX_CEIL == static_cast<int>(ScaleRule::mx_ceil));
static_assert(RULE_MX_EVEN == static_cast<int>(ScaleRule::mx_even));
static_assert(RULE_MX_NEAREST == static_cast<int>(ScaleRule::mx_nearest));
static_assert(RULE_MX_UP == static_cast<int>(ScaleRule::mx_up));
static_assert(RULE_E4M3 == static_cast<int>(ScaleRule::e4m3));
static_assert(RULE_RANGE == static_cast<int>(ScaleRule::range));
static_assert(RULE_RATIO_OVER_ROWS == static_cast<int>(ScaleRule::ratio_over_rows));
static_assert(RULE_GIVEN == static_cast<int>(ScaleRule::given));
static_assert(QUOTIENT_DIVIDE == static_cast<int>(Quotient::divide));
static_assert(QUOTIENT_RECIPROCAL == static_cast<int>(Quotient::reciprocal));
static_assert(QUOTIENT_LARGEST_BY_AMAX == static_cast<int>(Quotient::largest_by_amax));
static_assert(ROUND_HALVES_TO_EVEN == static_cast<int>(Rounding::halves_to_even));
static_assert(ROUND_HALVES_AWAY == static_cast<int>(Rounding::halves_away));
static_assert(ROUND_TOWARD_ZERO == static_cast<int>(Rounding::toward_zero));

/// The type in which codes of `format` are stored.
DType code_dtype(CodeType format) { return is_integer(format) ? DType::i8 : storage_dtype(format).value_or(DType::u8); }

ScaleRule rule_of(const OperandQuant& how) {
  if (how.scale == ScaleFormat::e4m3) return ScaleRule::e4m3;
  if (how.static_scale) return ScaleRule::given;
  if (how.zero_points) return ScaleRule::range;
  const bool mx = how.scale == ScaleFormat::e8m0;
  switch (how.rounding) {
    case ScaleRounding::standard:
      break;
    case ScaleRounding::ratio_up:
      return mx ? ScaleRule::mx_ceil : ScaleRule::power_of_two;
    case ScaleRounding::amax_up:
      return ScaleRule::mx_up;
    case ScaleRounding::amax_even:
      return ScaleRule::mx_even;
    case ScaleRounding::amax_nearest:
      return ScaleRule::mx_nearest;
  }
  return mx ? ScaleRule::mx_floor : how.group.rows != ScaleGroup::whole ? ScaleRule::ratio : ScaleRule::ratio_over_rows;
}

bool is_for_each_expert(const TensorView& view, const Args& args) {
  return view.rank == 1 && view.dtype == DType::f32 && view.contiguous() &&
         view.shape[0] == std::max<std::int64_t>(experts_of(args), 1);
}
/// Whether the rows of each expert have a scale or global scale of their own.
bool by_expert(const Args& args) {
  return args.global_scales.present() ||
         (args.rule == ScaleRule::given && args.row_ends.present() && is_for_each_expert(args.scale, args));
}

std::string reject_zero(const Args& args) {
  const std::int64_t rows = rows_of(args), groups = groups_of(args);
  if (args.rule != ScaleRule::range)
    return args.zero.present() ? fmt::format("zero: the rule range alone has zero points, got {}", args.zero.describe())
                               : std::string();
  if (!args.zero.present() && !args.scale.present()) return {};
  if (args.zero.rank == 2 && args.zero.dtype == DType::i32 && args.zero.shape[0] == rows &&
      args.zero.shape[1] == groups)
    return {};
  return fmt::format("zero: expected i32 [{}, {}] beside the scales, got {}", rows, groups, args.zero.describe());
}

std::string reject_outputs(const Args& args) {
  const std::int64_t rows = rows_of(args), width = args.x.shape[1], groups = groups_of(args);
  const DType codes = code_dtype(args.format);
  if (args.q.rank != 2 || !(is_activation_dtype(args.q.dtype) || args.q.dtype == codes) || args.q.shape[0] != rows ||
      args.q.shape[1] != width)
    return fmt::format("q: expected {} or float [{}, {}], got {}", name(codes), rows, width, args.q.describe());
  if (of_whole_tensor(args.rule)) {
    if (args.scale.present() && args.scale.dtype == DType::f32 && (args.scale.elements() == 1 || by_expert(args)))
      return {};
    return fmt::format("scale: expected one f32{}, got {}",
                       args.rule == ScaleRule::given && experts_of(args) > 0
                           ? fmt::format(" or one for each of {} experts", experts_of(args))
                           : "",
                       args.scale.describe());
  }
  if (args.group_rows > 1) {
    const std::int64_t of_rows = quotient_up(rows, args.group_rows);
    if (args.scale.rank == 2 && args.scale.dtype == DType::f32 && args.scale.shape[0] == of_rows &&
        args.scale.shape[1] == groups && args.scale.contiguous())
      return {};
    return fmt::format("scale: expected contiguous f32 [{}, {}], got {}", of_rows, groups, args.scale.describe());
  }
  if (!args.scale.present() && is_activation_dtype(args.q.dtype)) return {};
  const DType other = args.rule == ScaleRule::e4m3 ? DType::f8_e4m3 : DType::u8;
  const bool has_other = args.rule == ScaleRule::e4m3 || is_power_of_two(args.rule);
  if (args.scale.rank == 2 && (args.scale.dtype == DType::f32 || (has_other && args.scale.dtype == other)) &&
      args.scale.shape[0] == rows && args.scale.shape[1] == groups)
    return {};
  return fmt::format("scale: expected f32{} [{}, {}], got {}", has_other ? fmt::format(" or {}", name(other)) : "",
                     rows, groups, args.scale.describe());
}

std::string reject_rules(const Args& args) {
  if (args.format != CodeType::i8 && args.format != CodeType::i4 && minifloat_of(args.format).exponent_bits == 0)
    return fmt::format("format: expected i8, i4 or a floating-point format of at most 8 bits, got {}",
                       name(args.format));
  if (is_integer(args.format) && (is_mx(args.rule) || args.rule == ScaleRule::e4m3))
    return "rule: powers of two by MX rules and e4m3 scales are for floating-point codes, not for integers";
  if (args.rule == ScaleRule::range &&
      (args.format != CodeType::i8 || args.quotient != Quotient::divide || args.rounding != Rounding::halves_to_even))
    return fmt::format("rule: range is of i8 codes, divided and rounded to even, got {}", name(args.format));
  if (!is_integer(args.format) && args.rounding != Rounding::halves_to_even)
    return "rounding: floating-point codes are rounded to nearest even";
  if (args.group_rows < 1 || args.group_rows > std::numeric_limits<std::int32_t>::max())
    return fmt::format("group_rows: {} is not in [1, 2^31)", args.group_rows);
  if (args.group_rows > 1 && args.rule != ScaleRule::ratio && args.rule != ScaleRule::power_of_two)
    return fmt::format("group_rows: {} rows share a scale by the rules ratio and power_of_two alone", args.group_rows);
  if (args.group < 0) return fmt::format("group: {} is negative", args.group);
  if (args.group != 0 && of_whole_tensor(args.rule))
    return fmt::format("group: one scale for all rows, but groups of {} columns", args.group);
  for (const auto& [what, value] :
       {std::pair("least_amax", args.least_amax), std::pair("least_scale", args.least_scale)})
    if (!(value >= 0) || std::isinf(value)) return fmt::format("{}: {} is negative or not finite", what, value);
  if (!(args.most_amax >= args.least_amax))
    return fmt::format("most_amax: {} is below least_amax {}", args.most_amax, args.least_amax);
  if (!(args.global_scale > 0) || std::isinf(args.global_scale))
    return fmt::format("global_scale: {} is not positive or not finite", args.global_scale);
  if (args.global_scale != 1 && args.rule != ScaleRule::e4m3)
    return fmt::format("global_scale: {} belongs to the rule e4m3", args.global_scale);
  if (args.global_scales.present() &&
      (args.rule != ScaleRule::e4m3 || args.global_scale != 1 || !is_for_each_expert(args.global_scales, args)))
    return fmt::format("global_scales: expected f32[{}], of the rule e4m3 in place of global_scale, got {}",
                       std::max<std::int64_t>(experts_of(args), 1), args.global_scales.describe());
  return {};
}

quantize_groups_args kernel_args(const Args& args) {
  const std::int64_t group_rows = args.group_rows > 1 ? args.group_rows
                                  : has_scale(args)   ? std::numeric_limits<std::int32_t>::max()
                                                      : 1;
  return {.x_first = first_element(args.x),
          .index_first = first_element(args.index),
          .row_ends_first = first_element(args.row_ends),
          .q_first = first_element(args.q),
          .scale_first = first_element(args.scale),
          .zero_first = first_element(args.zero),
          .global_scales_first = first_element(args.global_scales),
          .x_stride = args.x.stride[0],
          .q_stride = args.q.stride[0],
          .scale_stride = args.scale.rank == 2 || by_expert(args) ? args.scale.stride[0] : 0,
          .zero_stride = args.zero.stride[0],
          .rows_per_expert = args.rows_per_expert,
          .out_rows = rows_of(args),
          .rows = int_of(args.x.shape[0]),
          .width = int_of(args.x.shape[1]),
          .group = int_of(group_of(args)),
          .group_rows = int_of(group_rows),
          .divisor = args.divisor,
          .experts = int_of(experts_of(args)),
          .rules = rules_of(args)};
}

}  // namespace

Args args_of(const OperandQuant& how) {
  Args args;
  args.format = *how.type;
  args.group = how.group.columns == ScaleGroup::whole ? 0 : how.group.columns;
  args.group_rows = how.group.rows == ScaleGroup::whole ? 1 : how.group.rows;
  args.rule = rule_of(how);
  args.most_amax = how.most_amax;
  args.least_scale = how.least_scale;
  return args;
}

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [N, K], got {}", args.x.describe());
  if (args.index.present() && (args.index.rank != 1 || args.index.dtype != DType::i32))
    return fmt::format("index: expected i32[R], got {}", args.index.describe());
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  if (std::string reason = reject_rules(args); !reason.empty()) return reason;
  if (std::string reason = reject_outputs(args); !reason.empty()) return reason;
  if (std::string reason = reject_zero(args); !reason.empty()) return reason;
  if (rows_of(args) > std::numeric_limits<std::uint32_t>::max() / 2 / std::max<std::int64_t>(groups_of(args), 1))
    return fmt::format("x: {} rows of {} groups are more than 2^31 groups", rows_of(args), groups_of(args));
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows_of(args)); !reason.empty())
    return reason;
  if (std::string reason = reject_width("x", std::max(args.x.shape[1], args.group)); !reason.empty()) return reason;
  if (config.lanes > 0 && !std::has_single_bit(static_cast<std::uint32_t>(config.lanes)))
    return fmt::format("lanes: {} is no power of two", config.lanes);
  return reject_lanes(config.lanes, device.caps);
}

Plan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "quantize_groups: {}", reason);
  const std::int64_t group = group_of(args), groups = groups_of(args);
  const Lanes shape(group, groups, config, device);
  const auto local = static_cast<std::size_t>(shape.count), rows = static_cast<std::size_t>(rows_of(args));
  const auto teams = quotient_up(static_cast<std::size_t>(rows_of(args) * groups), shape.teams());
  const std::string options =
      quantize_groups::options(args, shape, device.caps) + (by_expert(args) ? " -DBY_EXPERT=1" : "");
  const bool by_rows = shape.count == 1;
  Plan plan;
  plan.codes = {by_rows ? "row_per_item" : "groups_per_group",
                options,
                {by_rows ? rows : teams * local, 1, 1},
                {local, 1, 1},
                fmt::format("{} to {} by {}", args.x.describe(), name(args.q.dtype), group),
                cost(args)};
  if (!of_several_rows(args)) return plan;
  plan.largest = {"largest_of_rows", options,           {teams * local, 1, 1},
                  {local, 1, 1},     args.x.describe(), {args.x.size_bytes(), 0}};
  plan.scales = {"scale_of_largest", options, {static_cast<std::size_t>(args.scale.elements()), 1, 1},
                 {1, 1, 1},          "",      {4, 1}};
  return plan;
}

void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit) {
  const quantize_groups_args given = kernel_args(args);
  if (of_several_rows(args)) {
    enqueue_fill(stream, args.scale.buffer.slice(0, args.scale.size_bytes()), 0, {submit.wait, nullptr});
    submit.wait = {};
    launch_planned(stream, source::quantize_groups, "largest_of_rows", plan.largest, {}, args.x, args.index,
                   args.row_ends, args.scale, given);
    launch_planned(stream, source::quantize_groups, "scale_of_largest", plan.scales, {}, args.scale, given);
  }
  launch_planned(stream, source::quantize_groups, "quantize_groups", plan.codes, submit, args.x, args.index,
                 args.row_ends, args.q, args.scale, args.zero, args.global_scales, given);
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const auto made = [&] { return plan(args, config, *stream.device); };
  enqueue(stream,
          *kept_plan(stream, source::quantize_groups, made, args.x, args.format, args.group, args.group_rows, args.rule,
                     args.q, args.scale, args.zero, args.least_amax, args.most_amax, args.least_scale,
                     args.global_scale, args.global_scales, args.quotient, args.rounding, args.index, args.divisor,
                     args.row_ends, args.rows_per_expert, config.lanes),
          args, submit);
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(rows_of(args) * args.x.shape[1]);
  const std::uint64_t reads = of_several_rows(args) ? 2 : 1;
  // A comparison, a division and a rounding for each element.
  return {reads * elements * size_bytes(args.x.dtype) + args.q.size_bytes() + args.scale.size_bytes() +
              args.zero.size_bytes() + args.index.size_bytes() + args.global_scales.size_bytes(),
          3 * elements};
}

}  // namespace moecl::quantize_groups
