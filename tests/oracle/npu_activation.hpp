#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// npu_swiglu of [outer, 2 * inner]: swish of the first half of each row times its second half, in double.
std::vector<double> swiglu(const std::vector<double>& x, std::int64_t outer, std::int64_t inner);

/// The constants of npu_dequant_swiglu_quant's SwiGLU.
struct SwigluForm {
  bool clamped = false;      ///< limit, alpha and bias apply
  bool interleaved = false;  ///< gate and up columns alternate
  bool right_is_gate = false;
  double limit = 7, alpha = 1.702, bias = 1;  ///< limit <= 0: none
};
/// Turns one row of 2H dequantized values into H.
std::vector<double> dequantized_swiglu(const std::vector<double>& x, const SwigluForm& form);

/// The integer in [lowest, 127] that a quotient rounds to, halves to even. A quotient so near to a half that an f32
/// error decides stays unrounded, so that a tolerance of 0.502 accepts both neighbours. With `exact`, halves are
/// rounded, too.
double code_or_tie(double quotient, double lowest, bool exact);

}  // namespace moecl::test::oracle
