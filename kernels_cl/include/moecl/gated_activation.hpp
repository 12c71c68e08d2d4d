#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// What stands between the two products of an expert. Gated ones halve the width: x = [gate | up].
enum class ActivationFunction : std::uint8_t {
  silu,       ///< silu(g) * u
  gelu,       ///< 0.5 g (1 + erf(g / sqrt 2)) * u
  gelu_tanh,  ///< the tanh approximation of gelu(g) * u
  swigluoai,  ///< g = min(g, limit), u = clamp(u, -limit, limit): (u + 1) * g * sigmoid(alpha * g)
  relu2,      ///< max(g, 0)^2 * u
};

struct Activation {
  ActivationFunction function = ActivationFunction::silu;
  bool gated = true;         ///< false: the function of x alone, without `u`; width kept (swigluoai is always gated)
  bool interleaved = false;  ///< gate and up columns alternate (g = x[2i], u = x[2i + 1]) instead of standing in halves
  float alpha = 1.702F;      ///< swigluoai
  float limit = 7.0F;        ///< swigluoai
};

}  // namespace moecl

/// The activation between an expert's two products, in f32, with optional per-row int8 quantization of the result: that
/// of quantize_rows with Rounding::divide, on values not rounded in between. NaN stays NaN.
///
/// Source: vLLM's fused MoE activations; gpt-oss model card for swigluoai
namespace moecl::gated_activation {

struct Args {
  TensorView x;         ///< Shape: [R, 2I] (gated) or [R, I]; f32, f16 or bf16
  TensorView row_ends;  ///< optional. Shape: [E] i32, cumulative; rows past the valid ones are neither read nor written
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
  Activation activation;
  TensorView out;    ///< Shape: [R, I] f32, f16 or bf16; i8 when `scale` is present
  TensorView scale;  ///< optional out. Shape: [R] f32
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items a row; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Config& config, const DeviceCaps& caps);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: R == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::gated_activation
