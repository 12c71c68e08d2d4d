#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// npu_swiglu of [outer, 2 * inner]: swish of the first half of each row times its second half, in double.
std::vector<double> swiglu(const std::vector<double>& x, std::int64_t outer, std::int64_t inner);

/// The constants of npu_dequant_swiglu_quant's SwiGLU.
struct SwigluForm {
  bool clamped = false;      ///< limit, alpha and bias count
  bool interleaved = false;  ///< gate and up columns alternate
  bool right_is_gate = false;
  double limit = 7, alpha = 1.702, bias = 1;  ///< limit <= 0: none
};
/// One row of 2H dequantized values to H.
std::vector<double> dequantized_swiglu(const std::vector<double>& x, const SwigluForm& form);

/// Quotients as the integers they round to, halves to even, in [lowest, 127]; one so near to a half that an error of
/// f32 decides stays as it is, so that 0.502 around it accepts both neighbours. 0.5 itself is no such case if `exact`.
double code_or_tie(double quotient, double lowest, bool exact);

}  // namespace moecl::test::oracle
