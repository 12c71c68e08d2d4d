#pragma once
#include <vector>

namespace moecl {

/// One expert as plain numbers, row-major f32: of quantized weights what their codes and scales stand for.
struct PlainExpert {
  std::vector<float> gate;                           ///< Shape: [I, L]; empty where there is none
  std::vector<float> up;                             ///< Shape: [I, L]
  std::vector<float> down;                           ///< Shape: [L, I]
  std::vector<float> gate_bias, up_bias, down_bias;  ///< Shapes: [I], [I], [L]; empty where there is none
};

}  // namespace moecl
