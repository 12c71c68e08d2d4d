#pragma once
#include <moecl/minifloat.hpp>

namespace moecl {

inline constexpr Minifloat fp8_e4m3fn = {4, 3, -6, 0x7e};  ///< up to 448, no infinity
inline constexpr Minifloat fp8_e5m2 = {5, 2, -14, 0x7b};   ///< up to 57344

}  // namespace moecl
