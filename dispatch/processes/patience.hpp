#pragma once
// How a link without a bell rests: it polls again, at first immediately, later after short sleeps.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Threads: one for each channel.
class Patience {
 public:
  void moved(Link::Channel channel) noexcept { since_[channel] = {}; }
  void rest(Link::Channel channel) noexcept {
    constexpr std::chrono::microseconds at_once{100}, longest_sleep{500};
    const auto now = Clock::now();
    Clock::time_point& began = since_[channel];
    if (began == Clock::time_point()) began = now;
    if (now - began < at_once)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<Clock::duration>((now - began) / 8, longest_sleep));
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::array<Clock::time_point, Link::channels> since_{};  ///< start of the pause since bytes last moved; 0: none
};

}  // namespace moecl
