#pragma once
#include <vector>

namespace moecl {

/// One expert as plain numbers, row-major f32. Quantized weights are dequantized.
struct PlainExpert {
  std::vector<float> gate;                           ///< Shape: [I, L]; empty if there is none
  std::vector<float> up;                             ///< Shape: [I, L]
  std::vector<float> down;                           ///< Shape: [L, I]
  std::vector<float> gate_bias, up_bias, down_bias;  ///< Shapes: [I], [I], [L]; empty if there is none
};

}  // namespace moecl
