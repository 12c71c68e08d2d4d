#include "tools/progress.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <unistd.h>

namespace moecl::cli {
namespace {

const CLI::App* running = nullptr;  // the command that is being parsed
int progresses = 0;                 // open Progress objects

bool is_given(const char* option) {
  return running != nullptr && running->get_option_no_throw(option) != nullptr && running->count(option) != 0;
}

}  // namespace

void add_progress(CLI::App& command) {
  command.add_flag("--quiet")->description("no progress on stderr");
  command.preparse_callback([&command](std::size_t) { running = &command; });
}

Progress::Progress(std::string what) : what_(std::move(what)) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const bool shown = ++progresses == 1 && !is_given("--quiet") && (terminal || !is_given("--json"));
  form_ = !shown ? Form::none : terminal ? Form::bar : Form::lines;
  if (form_ == Form::none) return;
  ticker_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    const std::chrono::seconds pause(form_ == Form::bar ? 1 : 10);
    while (!changed_.wait_for(lock, pause, [this] { return ended_; })) show();
  });
}

Progress::~Progress() {
  --progresses;
  if (form_ == Form::none) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    wipe();
  }
  changed_.notify_one();
  ticker_.join();
}

void Progress::operator()(std::int64_t done, std::int64_t total) {
  if (form_ == Form::none) return;
  const std::lock_guard lock(mutex_);
  done_ = done, total_ = total;
  if (form_ == Form::bar && Clock::now() - last_ >= std::chrono::milliseconds(100)) show();
}

void Progress::hide() {
  if (form_ == Form::none) return;
  const std::lock_guard lock(mutex_);
  wipe();
}

/// Errors of writing to stderr are ignored.
void Progress::show() {
  last_ = Clock::now();
  const double seconds = std::chrono::duration<double>(last_ - begun_).count();
  if (form_ == Form::lines) {
    const std::string counted = total_ > 0 ? fmt::format("{} of {} ", done_, total_) : "";
    std::fputs(fmt::format("moecl: {}: {}after {:.0f} s\n", what_, counted, seconds).c_str(), stderr);
    return;
  }
  drawn_ = true;
  constexpr int width = 30;
  const int filled = total_ > 0 ? static_cast<int>(width * done_ / total_) : 0;
  std::fputs(
      fmt::format("\r{} [{:#<{}}{:{}}] {}/{} {:.0f} s", what_, "", filled, "", width - filled, done_, total_, seconds)
          .c_str(),
      stderr);
}

void Progress::wipe() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace moecl::cli
