#pragma once
// A progress bar on stderr, when that is a terminal.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <unistd.h>

namespace moecl::cli {

class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)), shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws at most ten times a second, and not at all what is done within the first.
  void operator()(std::int64_t done, std::int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    constexpr int width = 30;
    const int filled = total > 0 ? static_cast<int>(width * done / total) : width;
    fmt::print(stderr, "\r{} [{:#<{}}{:{}}] {}/{}", what_, "", filled, "", width - filled, done, total);
  }

 private:
  std::string what_;
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace moecl::cli
