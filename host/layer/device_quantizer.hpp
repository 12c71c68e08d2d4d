#pragma once
// Plain weights, quantized on the device on their way into packed memory.
#include <moecl/buffer.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/quant_scheme.hpp>
#include <moecl/quantization_error.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

namespace moecl {

/// Rounds to the nearest code, halves to even, with scales from the largest magnitudes: of integers amax / 127 and
/// amax / 7, of fp8 amax / 448 (e5m2: 57344), of MX and NVFP4 as their definitions say.
///
/// Lifetime: the context outlives it. Source: as quantize_groups
class DeviceQuantizer {
 public:
  /// Errors: unsupported  zero points, or one scale for whole columns of several rows
  DeviceQuantizer(StreamView stream, const OperandQuant& to);

  /// Writes rows [first_column, first_column + N) of an expert. Stops the host for the error.
  ///
  /// @param plain   Shape: [N, K] f32, f16 or bf16, rows contiguous
  /// @param packed  Of WeightFormat::of the same quantization
  /// @param column_scale  Shape: [N] f32; absent where the format has none
  /// Errors: invalid_data  a NaN or infinity, which has no code
  void pack(TensorView plain, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column,
            TensorView column_scale);

  /// Of all matrices so far.
  const QuantizationError& error() const noexcept { return error_; }

 private:
  /// Adds what the differences of y to x are. Stops the host.
  QuantizationError difference(TensorView x, TensorView y, TensorView rows) const;

  StreamView stream_;
  OperandQuant to_;
  Workspace memory_;
  QuantizationError error_;
};

}  // namespace moecl
