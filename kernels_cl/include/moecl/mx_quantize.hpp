#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/minifloat.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Quantizes blocks of 32 numbers along an axis to a minifloat format, with a power of two (e8m0) as the scale of each:
/// code = x / 2^(scale - 127), rounded, too large numbers saturated. A last block may be shorter.
///
/// Exact on every device. A block of zeros has scale byte 0; one with NaN or infinity has scale byte 255 (NaN), codes
/// 0. Source: OCP Microscaling Formats 1.0, section 6.3; npu_dynamic_mx_quant of the Ascend operators
namespace moecl::mx_quantize {

/// Which power of two the scale of a block is.
enum class ScaleRule : std::uint8_t {
  floor_amax,  ///< 2^(floor(log2(amax)) - the format's largest exponent): the largest numbers may saturate
  ceil_ratio,  ///< 2^ceil(log2(amax / the format's largest number)): none does
};

/// How a quotient becomes a code: the nearest, halves to the even one or away from zero; or the one below.
enum class Rounding : std::uint8_t { halves_to_even, halves_away, downward };

struct Args {
  TensorView x;  ///< Shape: [N, L, I] f32, f16 or bf16; blocks run along L, and [L, I] is contiguous
  Minifloat format = {};
  /// out. Shape: [R, L, I] u8. With 4 bits two codes to a byte, the first in the low bits: [R, L, I / 2], or where I is
  /// 1 [R, L / 2, 1]
  TensorView y;
  TensorView
      scale;  ///< out. Shape: [R, ceil(L / 64), I, 2] u8: blocks in pairs, the last one's partner 0 if it has none
  ScaleRule scale_rule = ScaleRule::floor_amax;
  Rounding rounding = Rounding::halves_to_even;
  std::int32_t least_scale = 0;  ///< least scale byte of a block that is not all zeros. Range: [0, 254]
  float least_amax = 0;          ///< amax counts as at least this. Range: finite, not negative
  bool zeros_stay = false;       ///< a block of zeros has scale byte 0 whatever least_amax is
  /// optional. Shape: [R] i32: row j is that of x[index[j] / divisor]. Absent: R = N, row j is that of x[j].
  /// Range: entries outside [0, N * divisor) leave their row untouched
  TensorView index = {};
  std::int32_t divisor = 1;  ///< `divisor` consecutive index values share a row of x
  TensorView row_ends =
      {};  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items that share 64 blocks; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Args& args, const Config& config, const Device& device);
/// By the plan of arguments of that form.
void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: no elements enqueue nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::mx_quantize
