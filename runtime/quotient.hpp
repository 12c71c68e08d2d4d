#pragma once

namespace moecl {

/// x / divisor, rounded up, of what is not negative.
template <class X, class Divisor>
constexpr auto quotient_up(X x, Divisor divisor) noexcept {
  return (x + divisor - 1) / divisor;
}

}  // namespace moecl
