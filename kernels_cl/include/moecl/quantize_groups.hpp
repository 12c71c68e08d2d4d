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

/// Quantizes rows in groups of neighbouring columns: code = x / scale, rounded to the format. Finite numbers saturate.
///
/// Rows may be gathered at the same time, as in gather_rows. All arithmetic is f32. If the device does not round
/// division correctly (DeviceCaps), a quotient next to a tie may round to the other side. NaN or infinity in a group
/// shows in its scale or in its codes, which are NaN if the format has NaN; other groups are not affected. Source:
/// vLLM's activation quantizers (scaled fp8 and int8, per-token-group, OCP MX, nvfp4); quantize_rows has the integer
/// rows of the Ascend operators
namespace moecl::quantize_groups {

/// How a group's scale is made. `amax` is the group's largest magnitude, `largest` the format's largest number (127 for
/// i8, 7 for i4).
enum class ScaleRule : std::uint8_t {
  ratio,         ///< amax / largest; if that is below 2^-126, the scale is 1 and the codes are 0
  power_of_two,  ///< as ratio, rounded up to a power of two ("UE8M0")
  mx_floor,      ///< 2^(floor(log2(amax)) - floor(log2(largest))). Source: OCP Microscaling Formats 1.0, section 6.3
  mx_ceil,       ///< 2^ceil(log2(amax / largest))
  mx_even,       ///< as mx_floor, but amax from 1.75 * 2^n on counts as 2^(n + 1). Source: compressed-tensors
  mx_nearest,    ///< as mx_floor, with amax rounded to the format's mantissa, ties up. Source: Quark, "even"
  mx_up,         ///< 2^(ceil(log2(amax)) - floor(log2(largest))). Source: Quark, "ceil"
  e4m3,          ///< e4m3(global_scale * amax / largest); code = x * (global_scale / scale). Source: nvfp4
  /// i8 only, asymmetric: (max - min) / 255 of the group's numbers and 0; 1 if that is below 2^-126. The zero point is
  /// round(-128 - min / scale); code = round(x / scale) + zero point, in [-128, 127]. Source: vLLM's dynamic int8
  /// quantization with azp
  range,
  ratio_over_rows,  ///< as ratio, with one amax over all valid rows
  given,            ///< the caller gives the scale
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
  std::int64_t group = 0;               ///< columns that share a scale; the last group may be shorter. 0: all K
  std::int64_t group_rows = 1;          ///< and rows, for ratio and power_of_two; the last group may have fewer
  ScaleRule rule = ScaleRule::ratio;
  /// out. Shape: [R, K]. Codes, one per byte: i8, f8_e4m3 or f8_e5m2 as `format`, i8 for i4, u8 for narrower floats. Or
  /// f32, f16 or bf16: the numbers that the codes stand for
  TensorView q;
  /// out. Shape: [ceil(R / group_rows), ceil(K / group)] f32. With group_rows = 1 it may also be u8 (e8m0 bytes) for
  /// the rules that make powers of two, or f8_e4m3 for the rule e4m3, and it is optional if q holds numbers. For
  /// ratio_over_rows: one f32. For `given` it is an input: one f32, or with row_ends [E], one for the rows of each
  /// expert
  TensorView scale;
  TensorView zero = {};  ///< out, for the rule range only; optional if scale is. Shape: as scale, i32
  float least_amax = 0;  ///< lower bound for amax. Range: finite, not negative; this and the next two: ratios only
  float most_amax = std::numeric_limits<float>::infinity();  ///< upper bound for amax, unless amax is NaN
  float least_scale = 0;
  float global_scale = 1;                ///< for ScaleRule::e4m3. Range: positive, finite
  TensorView global_scales = {};         ///< optional. Shape: [E] f32, one for each expert's rows; [1] without row_ends
  Quotient quotient = Quotient::divide;  ///< for the ratios and `given`
  Rounding rounding = Rounding::halves_to_even;  ///< of i8; the other formats round to nearest even
  /// optional. Shape: [R] i32: output row j comes from x[index[j] / divisor]. Absent: R = N, output row j comes
  /// from x[j]. Range: [0, N * divisor); other entries leave their output row untouched
  TensorView index = {};
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  TensorView row_ends =
      {};  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
};

/// Arguments with the format, group sizes, rule and limits of `how`.
Args args_of(const OperandQuant& how);

struct Config {
  /// Work-items of a work-group, a power of two. 0 picks the tuned number, else 1 on a CPU and 32 to 256 elsewhere,
  /// depending on the group.
  std::int32_t lanes = 0;
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// The launches of a quantization, decided once for all arguments of the same form (see LaunchPlan).
struct Plan {
  LaunchPlan codes;
  /// If several rows share a scale: find the largest magnitudes, then make scales of them.
  LaunchPlan largest, scales;
};
/// Errors: invalid_argument  `reject` says why
Plan plan(const Args& args, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form.
void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel; four commands for ratio_over_rows and for group_rows > 1. Empty: R == 0 enqueues nothing, but
/// ratio_over_rows still writes a scale
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::quantize_groups
