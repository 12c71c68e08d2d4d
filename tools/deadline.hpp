#pragma once
#include <chrono>

namespace moecl::cli {

/// For measurements that follow each other: one begins only while as much time is left as the one before it took.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline(Clock::time_point now, double seconds)
      : end_(now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))), begun_(now) {}

  /// Whether another one may begin now; the one before it has just ended.
  bool begin(Clock::time_point now = Clock::now()) {
    const Clock::duration last = now - begun_;
    begun_ = now;
    return now < end_ && now + last <= end_;
  }

 private:
  Clock::time_point end_, begun_;
};

}  // namespace moecl::cli
