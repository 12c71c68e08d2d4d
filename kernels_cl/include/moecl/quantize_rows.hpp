#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Quantizes rows to int8, int4 or 8-bit floats: q = x * scale^-1, rounded. The scale of a row comes from the numbers
/// of the row, or the caller gives it.
///
/// Rows may be gathered at the same time, as in gather_rows, and multiplied by a smooth vector first. All arithmetic is
/// f32 unless a scheme or rounding says f16. A symmetric row of zeros, or with a scale below the smallest normal number
/// (2^-126), gets scale 0 and codes 0. NaN or infinity in a row shows in its scale, and its q are undefined. If the
/// device does not round division correctly (DeviceCaps), a quotient next to a tie may round to the other side.
/// Source: npu_dynamic_quant, npu_dynamic_quant_asymmetric and npu_moe_init_routing_v2 of the Ascend operators
namespace moecl::quantize_rows {

/// How a row's numbers become int8 codes q.
enum class Scheme : std::uint8_t {
  symmetric,   ///< scale = amax(|x|) / 127, q in [-127, 127]
  asymmetric,  ///< scale = max((max - min) / 255, 1e-12), offset = 127 - max / scale, q = round(x / scale + offset)
  static_f16,  ///< q = round(f16(x) * f16(scale) + f16(offset)), product and sum rounded to f16 too
  given,       ///< q = round(x * scale), `scale` may be absent; int8 in [-128, 127]
};

/// The format of the codes. Floats saturate; e4m3 and e5m2 round halves to even, hif8 away from zero.
enum class Codes : std::uint8_t { integer, e4m3, e5m2, hif8 };

/// How the numbers of symmetric rows are scaled and rounded; results differ by at most one unit. For 127 read 7 with
/// int4, 448 with e4m3, 57344 with e5m2, 32768 with hif8.
/// Ties go to the even number unless stated otherwise.
enum class Rounding : std::uint8_t {
  divide,                       ///< x / (amax / 127)
  divide_scaled,                ///< x / scale; the scale is amax * (1 / 127)
  multiply_reciprocal,          ///< x * (1 / (amax / 127))
  multiply_127_by_amax,         ///< x * (127 / amax); the scale is 1 / (127 / amax)
  multiply_127_by_amax_scaled,  ///< x * (127 / amax); the scale is amax * (1 / 127)
  divide_ties_away,             ///< x / (amax / 127), ties away from zero
  multiply_reciprocal_f16,      ///< x * (1 / (amax / 127)), rounded to f16 before it is rounded to an integer
  divide_scaled_f16,            ///< as divide_scaled, rounded to f16 before it is rounded to an integer
};

struct Args {
  TensorView x;         ///< Shape: [N, H] f32, f16 or bf16
  TensorView row_ends;  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
  /// out. Shape: [R, H] i8, or u8 for floats; int4: [R, H / 8] i32 or [R, H / 2] u8, element 0 in the lowest bits
  TensorView q;
  TensorView scale;  ///< out. Shape: [R] f32. With Scheme::static_f16 and given: in, [1]
  Rounding rounding = Rounding::divide;
  Scheme scheme = Scheme::symmetric;
  TensorView offset = {};  ///< Scheme::asymmetric: out, Shape: [R] f32. Scheme::static_f16: in, [1] f32. Else absent
  /// optional. Shape: [H], [1, H], or [E, H] for the experts of row_ends or smooth_rows; f32, f16 or bf16
  TensorView smooth = {};
  /// optional. Shape: [R] i32: output row j comes from x[index[j] / divisor]. Absent: R = N, output row j comes
  /// from x[j]. Range: [0, N * divisor); other entries leave their output row untouched
  TensorView index = {};
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  /// optional, needs index. Shape: [N * divisor] i32: row j uses smooth[smooth_rows[index[j]]]. Range: [0, E)
  TensorView smooth_rows = {};
  /// Columns that share a scale. 0: all of a row. 8: symmetric int8 only; `scale` is [R, H / 8] f32, f16 or bf16, and
  /// scales are rounded to this type after use. Source: comm_quant_mode 2 of npu_moe_distribute_combine_v2. 128:
  /// symmetric floats only; `scale` is [R, ceil(H / 128) or more] f32, and columns of `scale` past the groups become 0
  std::int32_t group = 0;
  Codes codes = Codes::integer;
  bool power_of_two = false;  ///< groups of 128 with Rounding::divide: scales are rounded up to powers of two
  float least_amax = 0;       ///< for the same: lower bound for amax. Range: finite, not negative
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items per row; 0 picks the tuned number, else 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: R == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::quantize_rows
