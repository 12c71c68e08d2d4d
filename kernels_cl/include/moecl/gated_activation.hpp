#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/quantize_rows.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// The function between the two products of an expert. Gated functions halve the width: x = [gate | up].
enum class ActivationFunction : std::uint8_t {
  silu,       ///< silu(g) * u
  gelu,       ///< 0.5 g (1 + erf(g / sqrt 2)) * u
  gelu_tanh,  ///< the tanh approximation of gelu(g) * u
  swigluoai,  ///< g = min(g, limit), u = clamp(u, -limit, limit): (u + bias) * g * sigmoid(alpha * g)
  relu2,      ///< max(g, 0)^2 * u
  relu,       ///< max(g, 0) * u
  fast_gelu,  ///< g * sigmoid(1.702 g) * u, computed as g exp(0.851 (g - |g|)) / (1 + exp(-1.702 |g|)) * u
};

/// "silu"
const char* name(ActivationFunction function) noexcept;

/// An activation with its parameters.
struct Activation {
  ActivationFunction function = ActivationFunction::silu;
  bool gated = true;         ///< false: the function of x alone, without `u`; width kept (swigluoai is always gated)
  bool interleaved = false;  ///< gate and up columns alternate (g = x[2i], u = x[2i + 1]) instead of standing in halves
  float alpha = 1.702F;      ///< swigluoai
  float limit = 7.0F;        ///< swigluoai; 0 or less: none
  float bias = 1.0F;         ///< swigluoai; with alpha 1, bias 0 and no limit it is silu
  bool gate_is_right = false;  ///< x = [up | gate]; interleaved: g = x[2i + 1]

  /// Columns of x for a result of `width` columns.
  std::int64_t input_width(std::int64_t width) const noexcept { return gated ? 2 * width : width; }
  float effective_limit() const noexcept;  ///< infinite where there is none
  /// Why this activation does not exist; empty when it does.
  std::string reject() const;
};

}  // namespace moecl

/// The activation between an expert's two products, in f32. Optionally it first dequantizes its input, and quantizes
/// each row of its result to int8, as quantize_rows does, without rounding the result before. NaN stays NaN.
///
/// Input: x * column_scale * row_scale + bias; an i32 bias is added to x before the scales.
/// Codes: with `scale`, y * quant_scale is quantized as a symmetric row. Without it they are
/// round(y / quant_scale + quant_offset) in [-128, 127]; for a quant_scale of one element, y is multiplied by its
/// reciprocal.
/// Source: vLLM's fused MoE activations; gpt-oss model card for swigluoai; npu_dequant_swiglu_quant and
/// npu_grouped_matmul (fast_gelu) of the Ascend operators
namespace moecl::gated_activation {

struct Args {
  TensorView x;         ///< Shape: [R, 2I] (gated) or [R, I]; f32, f16, bf16 or i32
  TensorView row_ends;  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
  Activation activation;
  TensorView out;    ///< Shape: [R, I] f32, f16 or bf16; i8 when `scale` or `quant_scale` is present
  TensorView scale;  ///< optional out. Shape: [R] f32

  // Optional. Values for each column are [width] or [1, width] for all rows, or [E, width] for the experts of row_ends.
  TensorView column_scale = {};  ///< f32, width as x
  TensorView row_scale = {};     ///< Shape: [R] f32
  TensorView bias = {};          ///< f32, f16, bf16, or i32 beside i32 rows; width as x
  TensorView quant_scale = {};   ///< f32, width I; or [1]
  TensorView quant_offset = {};  ///< f32, shape as quant_scale; only without `scale`
  quantize_rows::Rounding rounding = quantize_rows::Rounding::divide;  ///< with `scale`
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items for each row; 0 picks the tuned number, else 1 on a CPU and 64 elsewhere
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

}  // namespace moecl::gated_activation
