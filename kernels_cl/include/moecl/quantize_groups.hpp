#pragma once
#include <moecl/code_type.hpp>
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/quant_scheme.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <limits>
#include <string>

/// Quantizes rows in groups of neighbouring columns: code = x / scale, rounded to the format, finite numbers saturated.
///
/// Rows may be gathered on the way, as in gather_rows. All arithmetic is f32; where the device does not round division
/// correctly (DeviceCaps) a quotient next to a tie may go to the other side. NaN or infinity in a group shows in its
/// scale or in its codes, which are NaN where the format has one; other groups do not see it. Source: vLLM's activation
/// quantizers (scaled fp8 and int8, per-token-group, OCP MX, nvfp4); quantize_rows has the integer rows of the Ascend
/// operators
namespace moecl::quantize_groups {

/// `amax` is the group's largest magnitude, `largest` the format's largest number (of integers 127 and 7).
enum class ScaleRule : std::uint8_t {
  ratio,         ///< amax / largest; 1 where that is below 2^-126, and the codes are 0
  power_of_two,  ///< the ratio, rounded up to a power of two ("UE8M0")
  mx_floor,      ///< 2^(floor(log2(amax)) - that of largest). Source: OCP Microscaling Formats 1.0, section 6.3
  mx_ceil,       ///< 2^ceil(log2(amax / largest))
  mx_even,       ///< as mx_floor, of amax rounded up from 1.75 times a power of two on. Source: compressed-tensors
  mx_nearest,    ///< as mx_floor, of amax rounded to the format's mantissa, halves up. Source: Quark, "even"
  mx_up,         ///< 2^(ceil(log2(amax)) - that of largest). Source: Quark, "ceil"
  e4m3,          ///< e4m3(global_scale * amax / largest); code = x * (global_scale / scale). Source: nvfp4
  /// of i8, asymmetric: (greatest - least) / 255 of the group with a 0 in it, 1 where that is below 2^-126, with the
  /// zero point round(-128 - least / scale); code = round(x / scale) + zero point in [-128, 127]. Source: vLLM's
  /// dynamic int8 quantization with azp
  range,
  ratio_over_rows,  ///< the ratio of the amax of all valid rows together
  given,            ///< by the caller
};
/// How x / scale is computed.
enum class Quotient : std::uint8_t {
  divide,           ///< x / scale
  reciprocal,       ///< x * (1 / scale)
  largest_by_amax,  ///< x * (largest / amax)
};
/// How a quotient becomes a code.
enum class Rounding : std::uint8_t { halves_to_even, halves_away, toward_zero };

struct Args {
  TensorView x;                         ///< Shape: [N, K] f32, f16 or bf16
  CodeType format = CodeType::f8_e4m3;  ///< i8, i4, f8_e4m3, f8_e5m2, f6_e2m3, f6_e3m2 or f4_e2m1
  std::int64_t group = 0;               ///< columns that share a scale, the last group may be shorter; 0: all K
  std::int64_t group_rows = 1;          ///< and rows, of ratio and power_of_two; the last group may have fewer
  ScaleRule rule = ScaleRule::ratio;
  /// out. Shape: [R, K] i8, f8_e4m3 or f8_e5m2 as `format`, i8 of i4, u8 of narrower floats: codes, one to a byte; f32,
  /// f16 or bf16: the numbers they stand for
  TensorView q;
  /// out, optional where q holds numbers of single rows. Shape: [ceil(R / group_rows), ceil(K / group)] f32; of single
  /// rows also u8, an e8m0 byte, of the rules that make powers of two; f8_e4m3 of `e4m3`. One element, f32, of
  /// ratio_over_rows, and of `given`, which reads it, or with row_ends [E], one for the rows of each expert
  TensorView scale;
  TensorView zero = {};  ///< out, of the rule range; optional where scale is. Shape: as scale, i32
  float least_amax =
      0;  ///< amax counts as at least this. Range: finite, not negative; this and the next two: ratios only
  float most_amax = std::numeric_limits<float>::infinity();  ///< and as at most this, unless it is NaN
  float least_scale = 0;
  float global_scale = 1;                ///< of ScaleRule::e4m3. Range: positive, finite
  TensorView global_scales = {};         ///< optional. Shape: [E] f32, [1] without row_ends: that of each expert's rows
  Quotient quotient = Quotient::divide;  ///< of the ratios and `given`
  Rounding rounding = Rounding::halves_to_even;  ///< of i8; the other formats round to nearest even
  /// optional. Shape: [R] i32: row j is that of x[index[j] / divisor]. Absent: R = N, row j is that of x[j].
  /// Range: entries outside [0, N * divisor) leave their row untouched
  TensorView index = {};
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  TensorView row_ends =
      {};  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
};

/// What `how` says: format, group and rows, rule and limits.
Args args_of(const OperandQuant& how);

struct Config {
  /// Work-items of a work-group: a power of two; 0 picks the tuned ones, else 1 on a CPU, elsewhere 32 to 256 by the
  /// group.
  std::int32_t lanes = 0;
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// The launches of a quantization, decided once for all arguments of one form.
struct Plan {
  LaunchPlan codes;
  /// Where several rows share a scale: of their largest magnitudes, and of the scales from those.
  LaunchPlan largest, scales;
};
/// Errors: invalid_argument  `reject` says why
Plan plan(const Args& args, const Config& config, const Device& device);
/// By the plan of arguments of that form.
void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel; of ratio_over_rows, and with group_rows, four commands. Empty: R == 0 enqueues nothing,
/// ratio_over_rows still a scale
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::quantize_groups
