#pragma once
// Numbers for stamps.clh.
#include <atomic>
#include <cstdint>
#include <random>

namespace moecl {

/// The first of 16 stamps of a launch, that no word in memory has, of this process or of others.
inline std::uint64_t next_stamps() {
  constexpr std::uint32_t stamps = 16;
  static std::atomic<std::uint64_t> next = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | (random() & ~(stamps - 1));
  }();
  return next.fetch_add(stamps);
}

}  // namespace moecl
