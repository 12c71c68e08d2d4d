#include "runtime/child_process.hpp"

#include <moecl/error.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/check.hpp"

namespace moecl {
namespace {

using Clock = std::chrono::steady_clock;

/// Reads until the end of the pipe; false when the deadline came first.
bool read_all(int pipe, std::string& text, Clock::time_point deadline) {
  std::array<char, 4096> part{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{pipe, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = read(pipe, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

/// How it ended, in words; empty where it ended well.
std::string ending_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return {};  // the process ignores SIGCHLD: what was written has to tell
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("failed with status {}", WEXITSTATUS(status));
}

}  // namespace

std::string output_of(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) fail(ErrorCode::device_error, "{}: pipe: {}", program, std::strerror(errno));
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  if (error != 0) {
    close(pipe[0]);
    fail(ErrorCode::device_error, "{}: cannot be started: {}", program, std::strerror(error));
  }
  std::string text;
  const bool in_time = read_all(pipe[0], text, end);
  close(pipe[0]);
  if (!in_time) kill(child, SIGKILL);
  const std::string ending = ending_of(child);
  if (!in_time) fail(ErrorCode::device_error, "{}: took longer than {} ms", program, deadline.count());
  if (!ending.empty()) fail(ErrorCode::device_error, "{}: {}", program, ending);
  return text;
}

std::string helper_program(const std::string& name) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&helper_program), &here) == 0 || here.dli_fname == nullptr) return name;
  std::error_code error;
  const std::filesystem::path library = std::filesystem::canonical(here.dli_fname, error);
  return (library.parent_path() / "moecl_helpers" / name).string();
}

}  // namespace moecl
