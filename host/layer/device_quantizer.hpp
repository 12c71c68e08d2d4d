#pragma once
// Quantizes plain weights on the device and packs their codes.
#include <moecl/buffer.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/quant_scheme.hpp>
#include <moecl/quantization_error.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

namespace moecl {

/// Rounds to the nearest code, halves to even. Scales come from the largest magnitude of a group, amax: amax / 127 for
/// i8, amax / 7 for i4, amax / 448 for fp8 (e5m2: / 57344). MX and NVFP4 scales are as their definitions say.
///
/// Lifetime: the context outlives the quantizer. Source: as quantize_groups
class DeviceQuantizer {
 public:
  /// Errors: unsupported  zero points, or a scale that covers all columns of several rows
  DeviceQuantizer(StreamView stream, const OperandQuant& to);

  /// Writes rows [first_column, first_column + N) of an expert. Stops the host, which reads the quantization error.
  ///
  /// @param plain   Shape: [N, K] f32, f16 or bf16, rows contiguous
  /// @param packed  Memory in the format that WeightFormat::of gives for the same quantization
  /// @param column_scale  out. Shape: [N] f32; absent if the format has none
  /// Errors: invalid_data  a NaN or infinity, which has no code
  void pack(TensorView plain, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column,
            TensorView column_scale);

  /// The error of all matrices packed so far.
  const QuantizationError& error() const noexcept { return error_; }

 private:
  /// The error of y against x. Stops the host. @param rows  Scratch. Shape: [N, 4] f32
  QuantizationError difference(TensorView x, TensorView y, TensorView rows) const;

  StreamView stream_;
  OperandQuant to_;
  Workspace memory_;
  QuantizationError error_;
};

}  // namespace moecl
