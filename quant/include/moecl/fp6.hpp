#pragma once
#include <moecl/minifloat.hpp>

namespace moecl {

// Codes are stored four in three bytes, element 0 in the lowest bits. There is neither infinity nor NaN.
inline constexpr Minifloat fp6_e2m3 = {2, 3, 0, 31};   ///< up to 7.5 in steps of at least 0.125
inline constexpr Minifloat fp6_e3m2 = {3, 2, -2, 31};  ///< up to 28

}  // namespace moecl
