#pragma once
// Numbers for stamps.clh.
#include <atomic>
#include <cstdint>
#include <random>

namespace moecl {

/// Stamps that a launch has.
inline constexpr std::uint32_t stamps_of_launch = 16;

/// The first of a launch's stamps, that no word in memory has, of this process or of others.
inline std::uint64_t next_stamps() {
  static std::atomic<std::uint64_t> next = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | (random() & ~(stamps_of_launch - 1));
  }();
  return next.fetch_add(stamps_of_launch);
}

}  // namespace moecl
