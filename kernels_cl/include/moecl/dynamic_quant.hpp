#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Per-token dynamic int8 quantization: scale[t] = amax(|x[t]|) / 127, q = x / scale rounded half to even, in [-127,
/// 127].
///
/// amax, scale and quotient are f32. A row of zeros, or with a scale below the smallest normal number (2^-126), gives
/// scale 0 and zeros; NaN or infinity in a row shows in its scale, and its q are undefined. Where the device does not
/// round division correctly (DeviceCaps), a quotient next to a tie may go to the other side.
/// Source: npu_dynamic_quant of the Ascend operators
namespace moecl::dynamic_quant {

/// The legal orders of rounding; they differ by at most one unit.
enum class Rounding : std::uint8_t {
  divide,                ///< x / (amax / 127)
  divide_scaled,         ///< x / (amax * (1 / 127)), and that is the scale
  multiply_reciprocal,   ///< x * (1 / (amax / 127))
  multiply_127_by_amax,  ///< x * (127 / amax); the scale is 1 / (127 / amax)
};

struct Args {
  TensorView x;         ///< Shape: [N, H] f32, f16 or bf16
  TensorView row_ends;  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
  TensorView q;                      ///< out. Shape: [N, H] i8
  TensorView scale;                  ///< out. Shape: [N] f32
  Rounding rounding = Rounding::divide;
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items a row; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const DeviceCaps& caps);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: N == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::dynamic_quant
