#pragma once

namespace moecl {

/// x / divisor, rounded up, for numbers that are not negative.
template <class X, class Divisor>
constexpr auto quotient_up(X x, Divisor divisor) noexcept {
  return (x + divisor - 1) / divisor;
}

}  // namespace moecl
