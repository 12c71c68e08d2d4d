#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/minifloat.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Quantizes blocks of 32 numbers along an axis to a minifloat format. Each block has a power of two (e8m0) as its
/// scale: code = x / 2^(scale - 127), rounded. Numbers that are too large saturate. The last block may be shorter.
///
/// Exact on every device. A block of zeros has scale byte 0. A block with NaN or infinity has scale byte 255 (NaN) and
/// codes 0. Source: OCP Microscaling Formats 1.0, section 6.3; npu_dynamic_mx_quant of the Ascend operators
namespace moecl::mx_quantize {

/// Which power of two is the scale of a block; amax is the block's largest magnitude.
enum class ScaleRule : std::uint8_t {
  floor_amax,  ///< 2^(floor(log2(amax)) - the format's largest exponent): the largest numbers may saturate
  ceil_ratio,  ///< 2^ceil(log2(amax / the format's largest number)): no number saturates
};

/// How a quotient becomes a code: the nearest code, with ties to even or away from zero; or the next lower code.
enum class Rounding : std::uint8_t { halves_to_even, halves_away, downward };

struct Args {
  TensorView x;  ///< Shape: [N, L, I] f32, f16 or bf16; blocks run along L, and [L, I] is contiguous
  Minifloat format = {};
  /// out. Shape: [R, L, I] u8. Codes of 4 bits stand two in a byte, the first in the low bits: [R, L, I / 2], or
  /// [R, L / 2, 1] if I is 1
  TensorView y;
  TensorView scale;  ///< out. Shape: [R, ceil(L / 64), I, 2] u8: blocks in pairs; 0 where the last block has no partner
  ScaleRule scale_rule = ScaleRule::floor_amax;
  Rounding rounding = Rounding::halves_to_even;
  std::int32_t least_scale = 0;  ///< minimum scale byte of a block that is not all zeros. Range: [0, 254]
  float least_amax = 0;          ///< lower bound for amax. Range: finite, not negative
  bool zeros_stay = false;       ///< a block of zeros has scale byte 0 whatever least_amax is
  /// optional. Shape: [R] i32: output row j comes from x[index[j] / divisor]. Absent: R = N, output row j comes
  /// from x[j]. Range: [0, N * divisor); other entries leave their output row untouched
  TensorView index = {};
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  TensorView row_ends =
      {};  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items that share 64 blocks; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: without elements nothing is enqueued
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::mx_quantize
