#include "runtime/child_process.hpp"

#include <moecl/error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Most output that is kept of a running program.
constexpr std::size_t most_words_bytes = 16384;
/// Most bytes of last words in an error.
constexpr std::size_t last_words_bytes = 600;

/// One line without characters that act on a terminal.
std::string as_line(std::string_view words) {
  while (!words.empty() && std::isspace(static_cast<unsigned char>(words.back())) != 0) words.remove_suffix(1);
  if (words.size() > last_words_bytes) words.remove_prefix(words.size() - last_words_bytes);
  std::string line(words);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, ' ');
  return line;
}

/// Signals by which a person, a shell or a system short of memory ends a process.
bool is_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(std::exchange(descriptor, -1));
}

}  // namespace

ChildProcess::ChildProcess(std::string program, const std::vector<std::string>& arguments)
    : program_(std::move(program)) {
  std::array<int, 2> socket{-1, -1}, out{-1, -1}, error{-1, -1};
  int problem = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket.data()) != 0 || pipe2(out.data(), O_CLOEXEC) != 0 ||
      pipe2(error.data(), O_CLOEXEC) != 0)
    problem = errno;
  if (problem == 0) {
    std::vector<char*> argv = {program_.data()};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, socket[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    problem = posix_spawn(&child_, program_.c_str(), &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
  // Processes that the program starts may keep its pipes open: reading the pipes never blocks.
  for (const int ours : {out[0], error[0]}) fcntl(ours, F_SETFL, O_NONBLOCK);
  for (int* theirs : {&socket[1], &out[1], &error[1]}) close_if_open(*theirs);
  socket_ = socket[0], out_.descriptor = out[0], error_.descriptor = error[0];
  if (problem == 0) return;
  for (int* ours : {&socket_, &out_.descriptor, &error_.descriptor}) close_if_open(*ours);
  fail(ErrorCode::device_error, "{}: cannot be started: {}", program_, std::strerror(problem));
}

ChildProcess::~ChildProcess() {
  if (child_ > 0) reap(Clock::now());
  for (int* descriptor : {&socket_, &out_.descriptor, &error_.descriptor}) close_if_open(*descriptor);
}

bool ChildProcess::wait_for(short events, std::chrono::milliseconds deadline, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    std::array<pollfd, 3> waited{
        {{events != 0 ? socket_ : -1, events, 0}, {out_.descriptor, POLLIN, 0}, {error_.descriptor, POLLIN, 0}}};
    const int ready =
        left > 0 ? poll(waited.data(), waited.size(), static_cast<int>(std::min<long>(left, 1 << 30))) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      reap(end);
      fail(ErrorCode::deadline_exceeded, "{}: took longer than {} ms{}", program_, deadline.count(), last_words());
    }
    for (Pipe* pipe : {&out_, &error_}) {
      if (waited[pipe == &out_ ? 1 : 2].revents == 0) continue;
      std::array<char, 4096> part{};
      const ssize_t count = read(pipe->descriptor, part.data(), part.size());
      if (count > 0) pipe->text.append(part.data(), static_cast<std::size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) close_if_open(pipe->descriptor);
      if (events != 0 && pipe->text.size() > 2 * most_words_bytes)
        pipe->text.erase(0, pipe->text.size() - most_words_bytes);
    }
    if ((waited[0].revents & events) != 0) return true;
    if (waited[0].revents != 0 || (out_.descriptor < 0 && error_.descriptor < 0)) return false;
  }
}

bool ChildProcess::transfer(char* data, std::size_t size, short events, std::chrono::milliseconds deadline,
                            Clock::time_point end) {
  while (size != 0) {
    if (!wait_for(events, deadline, end)) return false;
    const ssize_t count = events == POLLIN ? recv(socket_, data, size, MSG_DONTWAIT)
                                           : ::send(socket_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

std::string ChildProcess::ask(std::string_view message, std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  std::uint64_t size = message.size();
  auto* const head = reinterpret_cast<char*>(&size);
  std::string answer;
  if (child_ == 0 || !transfer(head, sizeof(size), POLLOUT, deadline, end) ||
      !transfer(const_cast<char*>(message.data()), message.size(), POLLOUT, deadline, end) ||
      !transfer(head, sizeof(size), POLLIN, deadline, end))
    fail_ended();
  answer.resize(size);
  if (!transfer(answer.data(), answer.size(), POLLIN, deadline, end)) fail_ended();
  return answer;
}

std::string ChildProcess::output(std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  wait_for(0, deadline, end);
  if (const std::string how = ending(end); !how.empty()) fail(ErrorCode::device_error, "{}: {}", program_, how);
  return std::move(out_.text);
}

int ChildProcess::reap(Clock::time_point end) noexcept {
  const pid_t child = std::exchange(child_, 0);
  siginfo_t exited{};
  const auto goes_on = [&] {
    exited.si_pid = 0;
    return waitid(P_PID, static_cast<id_t>(child), &exited, WEXITED | WNOHANG | WNOWAIT) == 0 && exited.si_pid == 0;
  };
  while (goes_on() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool by_itself = !goes_on();
  kill(-child, SIGKILL);  // and what it started; before waitpid, after which its number may be another's
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;  // this process ignores SIGCHLD: only the output tells
  stopped_ = by_itself && WIFSIGNALED(status) && is_from_outside(WTERMSIG(status));
  ended_well_ = status == 0;
  return status;
}

std::string ChildProcess::ending(Clock::time_point end) {
  const int status = reap(end);
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)), last_words());
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("failed with status {}{}", WEXITSTATUS(status), last_words());
}

std::string ChildProcess::last_words() {
  std::array<char, 4096> part{};
  ssize_t count = 0;
  while (error_.descriptor >= 0 && (count = read(error_.descriptor, part.data(), part.size())) > 0)
    error_.text.append(part.data(), static_cast<std::size_t>(count));
  const std::string words = as_line(error_.text);
  return words.empty() ? "" : fmt::format(", its last words: {}", words);
}

void ChildProcess::fail_ended() {
  constexpr std::chrono::seconds grace{1};
  const std::string how = child_ > 0 ? ending(Clock::now() + grace) : "";
  fail(ErrorCode::device_error, "{}: {}", program_, how.empty() ? "ended without an answer" : how);
}

std::string output_of(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds deadline) {
  return ChildProcess(program, arguments).output(deadline);
}

namespace {

bool receive_all(int socket, char* data, std::size_t size) {
  while (size != 0) {
    const ssize_t count = recv(socket, data, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

bool send_all(int socket, const char* data, std::size_t size) {
  while (size != 0) {
    const ssize_t count = ::send(socket, data, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

bool receive_message(int socket, std::string& message) {
  std::uint64_t size = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&size), sizeof(size))) return false;
  message.resize(size);
  return receive_all(socket, message.data(), message.size());
}

bool send_message(int socket, std::string_view message) {
  const std::uint64_t size = message.size();
  return send_all(socket, reinterpret_cast<const char*>(&size), sizeof(size)) &&
         send_all(socket, message.data(), message.size());
}

std::string helper_program() {
  Dl_info here{};
  link_map* file = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&helper_program), &here, reinterpret_cast<void**>(&file),
              RTLD_DL_LINKMAP) == 0)
    return "helper";
  // The name of the main program is empty there.
  std::error_code error;
  const std::filesystem::path self = *file->l_name != '\0' ? file->l_name : "/proc/self/exe";
  const std::filesystem::path folder = std::filesystem::canonical(self, error).parent_path();
  std::filesystem::path helpers = folder / "moecl_helpers";
  if (!std::filesystem::exists(helpers, error)) helpers = folder / ".." / MOECL_LIBDIR / "moecl_helpers";
  return (helpers / "helper").string();
}

}  // namespace moecl
