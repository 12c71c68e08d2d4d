#pragma once
#include <moecl/minifloat.hpp>

namespace moecl {

// Codes are stored two to a byte, element 0 in the low bits. There is neither infinity nor NaN.
inline constexpr Minifloat fp4_e2m1 = {2, 1, 0, 7};  ///< 0, 0.5, 1, 1.5, 2, 3, 4, 6
/// 0 to 1.75 in steps of 0.25. Source: float4_e1m2fn of the Ascend operators
inline constexpr Minifloat fp4_e1m2 = {1, 2, 0, 7};

}  // namespace moecl
