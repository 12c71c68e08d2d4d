#pragma once
// The stamps for stamps.clh.
#include <atomic>
#include <cstdint>
#include <random>

#include "kernels_cl/common/launch_stamps.h"

namespace moecl {

/// The first of a launch's LAUNCH_STAMPS successive stamps. No word in memory holds one, of this process or of others.
inline std::uint64_t next_stamps() {
  static std::atomic<std::uint64_t> next = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | (random() & ~(LAUNCH_STAMPS - 1U));
  }();
  return next.fetch_add(LAUNCH_STAMPS);
}

}  // namespace moecl
