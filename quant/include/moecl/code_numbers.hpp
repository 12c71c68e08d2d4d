#pragma once
#include <moecl/code_type.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp6.hpp>
#include <moecl/fp8.hpp>

namespace moecl {

/// The format of a floating-point code of at most 8 bits; 0 exponent bits: `type` is no such code.
constexpr Minifloat minifloat_of(CodeType type) noexcept {
  switch (type) {
    case CodeType::f8_e4m3:
      return fp8_e4m3fn;
    case CodeType::f8_e5m2:
      return fp8_e5m2;
    case CodeType::f6_e2m3:
      return fp6_e2m3;
    case CodeType::f6_e3m2:
      return fp6_e3m2;
    case CodeType::f4_e2m1:
      return fp4_e2m1;
    default:
      return {};
  }
}

}  // namespace moecl
