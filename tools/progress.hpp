#pragma once
// Shows the progress of work that may take seconds.
#include <CLI/CLI.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace moecl::cli {

/// Adds --quiet to a command, and notes the command so that Progress can look at its options.
void add_progress(CLI::App& command);

/// Shows progress on stderr: on a terminal as a bar, drawn once a second and as things end; else, as in a log, as a
/// line every ten seconds. Shows nothing with --quiet, nor in a log with --json, nor within another Progress, such as
/// that of all cases. Threads may call it.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(std::int64_t done, std::int64_t total);
  /// Call it before other text goes to the terminal; the bar comes back when it is drawn again.
  void hide();

 private:
  enum class Form { none, bar, lines };
  using Clock = std::chrono::steady_clock;

  void show();
  void wipe();

  std::string what_;
  Form form_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::int64_t done_ = 0, total_ = 0;
  bool drawn_ = false, ended_ = false;
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
  std::thread ticker_;
};

}  // namespace moecl::cli
