#pragma once
// Options and arguments for kernels that quantize groups of columns (quantize_group.clh), alone or among other work.
#include <moecl/code_numbers.hpp>
#include <moecl/quantize_groups.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/quantize/quantize_rules.h"
#include "runtime/quotient.hpp"

namespace moecl::quantize_groups {

inline bool is_mx(ScaleRule rule) { return rule >= ScaleRule::mx_floor && rule <= ScaleRule::mx_up; }
inline bool is_power_of_two(ScaleRule rule) { return is_mx(rule) || rule == ScaleRule::power_of_two; }
inline bool of_several_rows(const Args& args) { return args.rule == ScaleRule::ratio_over_rows || args.group_rows > 1; }
inline bool of_whole_tensor(ScaleRule rule) { return rule == ScaleRule::given || rule == ScaleRule::ratio_over_rows; }

inline std::int64_t rows_of(const Args& args) { return args.index.present() ? args.index.shape[0] : args.x.shape[0]; }
inline std::int64_t group_of(const Args& args) {
  return std::max<std::int64_t>(args.group == 0 ? args.x.shape[1] : args.group, 1);
}
inline std::int64_t groups_of(const Args& args) { return quotient_up(args.x.shape[1], group_of(args)); }
inline std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 0; }
inline float largest_of(CodeType format) {
  return format == CodeType::i8   ? 127.0F
         : format == CodeType::i4 ? 7.0F
                                  : minifloat_of(format).decode(minifloat_of(format).largest);
}
inline bool has_scale(const Args& args) { return of_whole_tensor(args.rule) || of_several_rows(args); }

/// Work-items of a work-group, in teams that take a group of columns each. A lane keeps up to 64 numbers in registers.
struct Lanes {
  std::int32_t count, team, kept_steps = 0;
  bool knows_rules;  ///< the program is compiled for one format and rule

  /// For few groups: short code matters more than reading the numbers only once. On a CPU one program serves all rules.
  Lanes(std::int32_t lanes, std::int32_t lanes_of_team, const DeviceCaps& caps)
      : count(lanes), team(lanes_of_team), knows_rules(caps.type != DeviceType::cpu) {}
  Lanes(std::int64_t group, std::int64_t groups, const Config& config, const Device& device)
      : count(tuned_lanes("quantize_groups", config.lanes, device, 0)),  // 0: by the group
        team(1),
        knows_rules(device.caps.type != DeviceType::cpu || count == 1) {
    if (count == 1) return;
    const DeviceCaps& caps = device.caps;
    const std::int64_t steps = (group + 15) / 16;  // if a lane had the group alone
    const std::int64_t wanted = std::max(std::min<std::int64_t>(steps, 32), (steps + 3) / 4);
    const auto most = static_cast<std::int32_t>(std::bit_floor(std::min<std::size_t>(256, caps.max_work_group_size)));
    const std::int64_t largest = count != 0 ? count : most;
    team = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint64_t>(std::min(wanted, largest))));
    // Groups that are parts of rows share few large work-groups. A group that is a whole row gets a small one.
    if (count == 0) count = groups == 1 ? std::max(std::min(32, most), team) : most;
    const std::int64_t of_team = quotient_up(steps, team);
    if (of_team <= 4 && caps.type != DeviceType::cpu) kept_steps = static_cast<std::int32_t>(of_team);
  }
  std::int32_t teams() const { return count / team; }
};

inline quantize_rules rules_of(const Args& args) {
  const Minifloat format = minifloat_of(args.format);
  // The rule e4m3 has only this order of operations.
  const Quotient quotient = args.rule == ScaleRule::e4m3 ? Quotient::reciprocal : args.quotient;
  return {.bits = is_integer(args.format) ? 0 : std::int32_t{format.bits()},
          .mantissa_bits = format.mantissa_bits,
          .min_exponent = format.min_exponent,
          .largest_code = format.largest,
          .rule = static_cast<std::int32_t>(args.rule),
          .quotient = static_cast<std::int32_t>(quotient),
          .rounding = static_cast<std::int32_t>(args.rounding),
          .largest = largest_of(args.format),
          .least_amax = args.least_amax,
          .most_amax = args.most_amax,
          .least_scale = args.least_scale,
          .global_scale = args.global_scale};
}
inline bool same_rules(const Args& a, const Args& b) {
  const auto fields = [](const Args& args) {
    return std::tie(args.format, args.rule, args.quotient, args.rounding, args.least_amax, args.most_amax,
                    args.least_scale, args.global_scale);
  };
  return fields(a) == fields(b);
}
/// -D definitions for quantize_numbers.clh.
inline std::string number_options(const Args& args, bool knows_rules, bool exact_reciprocal, const DeviceCaps& caps) {
  const bool scale_is_code = args.scale.present() && args.scale.dtype != DType::f32;
  std::string options =
      fmt::format(" -DSCALE_IS_CODE={} -DSCALE_DTYPE={} -DQ_DTYPE={} -DEXACT_RECIPROCAL={} -DHAS_E4M3={}",
                  int{scale_is_code}, scale_is_code ? "u8" : "f32",
                  is_activation_dtype(args.q.dtype) || is_integer(args.format) ? name(args.q.dtype) : "u8",
                  int{exact_reciprocal}, caps.nv_compute_capability >= 89 ? 1 : 0);
  if (!knows_rules) return options;
  const quantize_rules rules = rules_of(args);
  options += fmt::format(" -DKNOWN_RULES=1 -DBITS={} -DMANTISSA_BITS={} -DMIN_EXPONENT={} -DLARGEST_CODE={}",
                         rules.bits, rules.mantissa_bits, rules.min_exponent, rules.largest_code) +
             fmt::format(" -DRULE={} -DQUOTIENT={} -DROUNDING={}", rules.rule, rules.quotient, rules.rounding);
  return options;
}

inline std::string options(const Args& args, const Lanes& lanes, const DeviceCaps& caps) {
  const bool given = has_scale(args);
  const bool fours =
      lanes.count > 1 && has_fours(args.x) && has_fours(args.q) && (groups_of(args) == 1 || group_of(args) % 4 == 0);
  // Division by the reciprocal is exact only if no infinity is divided by a finite scale. The conditions ensure that.
  const bool exact_reciprocal = lanes.count > 1 && caps.correctly_rounded_divide && !given &&
                                args.rule != ScaleRule::range && std::isinf(args.most_amax);
  return fmt::format("-DLANES={} -DTEAM={} -DNEIGHBOURS={} -DFOURS={} -DKEPT_STEPS={} -DHAS_SCALE={} -DIS_VALUES={:d}",
                     lanes.count, lanes.team, lanes.count == 1 ? 1 : 0, int{fours}, given ? 0 : lanes.kept_steps,
                     int{given}, is_activation_dtype(args.q.dtype)) +
         number_options(args, lanes.knows_rules, exact_reciprocal, caps) + dtype_option("X_DTYPE", args.x) +
         shuffle_option(lanes.count, caps);
}

}  // namespace moecl::quantize_groups
