#pragma once
// Plain weights, quantized on the host.
#include <moecl/moe_weights.hpp>
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

/// Of f32, f16 or bf16.
float element(const HostMatrix& matrix, std::int64_t row, std::int64_t column);

/// A quantized matrix and its memory. Codes stand row by row, several to a byte along K where they are narrower, which
/// is how compressed-tensors stores them too.
struct QuantizedWeights {
  std::vector<std::uint8_t> codes, scale, zero;
  WeightMatrix matrix;  ///< views of the above; follows moves, not copies

  QuantizedWeights() = default;
  QuantizedWeights(QuantizedWeights&&) = default;
  QuantizedWeights& operator=(QuantizedWeights&&) = default;
  QuantizedWeights(const QuantizedWeights&) = delete;
  QuantizedWeights& operator=(const QuantizedWeights&) = delete;
};

/// Rounds to the nearest code, halves to even, with scales from the largest magnitudes: of integers amax / 127 and
/// amax / 7 (4 bits with zero points: the range / 15), of fp8 amax / 448 (e5m2: 57344), of MX and NVFP4 as their
/// definitions say.
///
/// Shape: matrix [N, K]; narrow codes need K in whole units
/// Errors: invalid_argument  no such weights (`reject` of the scheme says why), or K does not fit; invalid_data  a NaN
///                           or infinity, which has no code
/// Source: OCP Microscaling Formats 1.0, section 6.3; NVFP4 as in vLLM's scaled_fp4_quant
QuantizedWeights quantize_weights(const HostMatrix& matrix, const OperandQuant& to);

}  // namespace moecl
