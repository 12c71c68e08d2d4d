#pragma once
// Quantizes plain weights on the host.
#include <moecl/moe_weights.hpp>
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

/// One element of a matrix of f32, f16 or bf16.
float element(const HostMatrix& matrix, std::int64_t row, std::int64_t column);

/// A quantized matrix that owns its memory. Codes are row-major; codes narrower than a byte are packed along K, as in
/// compressed-tensors.
struct QuantizedWeights {
  std::vector<std::uint8_t> codes, scale, zero;
  WeightMatrix matrix;  ///< views of the vectors above: valid after a move, not after a copy

  QuantizedWeights() = default;
  QuantizedWeights(QuantizedWeights&&) = default;
  QuantizedWeights& operator=(QuantizedWeights&&) = default;
  QuantizedWeights(const QuantizedWeights&) = delete;
  QuantizedWeights& operator=(const QuantizedWeights&) = delete;
};

/// Quantizes a matrix: values round to the nearest code, ties to even. A scale comes from amax, the largest magnitude
/// that it covers: amax / 127 or amax / 7 for integers (4 bits with zero points: the range / 15), amax / 448 for fp8
/// (e5m2: 57344), and as their definitions say for MX and NVFP4.
///
/// Shape: matrix [N, K]; with codes narrower than a byte, K must fill whole units
/// Errors: invalid_argument  no such weights (`reject` of the scheme says why), or K does not fit; invalid_data  a NaN
///                           or infinity, which has no code
/// Source: OCP Microscaling Formats 1.0, section 6.3; NVFP4 as in vLLM's scaled_fp4_quant
QuantizedWeights quantize_weights(const HostMatrix& matrix, const OperandQuant& to);

}  // namespace moecl
