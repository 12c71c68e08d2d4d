#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace moecl::cli {

/// For a series of measurements: one may begin only if the time left is at least that of the longest one so far.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline(Clock::time_point now, double seconds)
      : end_(now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))), begun_(now) {}

  /// Whether another one may begin now, as the one before has just ended. The first counts from the beginning.
  bool begin(Clock::time_point now = Clock::now()) {
    if (measured_) longest_ = std::max(longest_, now - begun_);
    measured_ = true;
    begun_ = now;
    return now < end_ && now + longest_ <= end_;
  }
  Clock::time_point end() const { return end_; }

 private:
  Clock::time_point end_, begun_;
  Clock::duration longest_{0};
  bool measured_ = false;
};

/// Calls a function at the given time, on its own thread, unless the alarm is destroyed before.
class Alarm {
 public:
  Alarm(Deadline::Clock::time_point at, std::function<void()> ring)
      : thread_([this, at, ring = std::move(ring)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_until(lock, at, [this] { return off_; })) ring();
        }) {}
  ~Alarm() {
    {
      const std::lock_guard lock(mutex_);
      off_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool off_ = false;
  std::thread thread_;
};

}  // namespace moecl::cli
