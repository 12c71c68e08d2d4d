#pragma once
// How far something is that may take seconds.
#include <CLI/CLI.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace moecl::cli {

/// Gives a command --quiet, and the others of its options that Progress asks for.
void add_progress(CLI::App& command);

/// On stderr: a bar where that is a terminal, drawn once a second and as things end, else a line every ten seconds, as
/// for a log. Nothing with --quiet, nor in a log beside --json. Within another one, of all the cases for example, it
/// shows nothing. Threads may call it.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(std::int64_t done, std::int64_t total);
  /// Before other words go to the terminal; the bar comes back when it is drawn again.
  void hide();

 private:
  enum class Form { none, bar, lines };
  using Clock = std::chrono::steady_clock;

  void show();
  void wipe();

  std::string what_;
  Form form_;
  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  std::int64_t done_ = 0, total_ = 0;
  bool drawn_ = false, ended_ = false;
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
  std::thread ticker_;
};

}  // namespace moecl::cli
