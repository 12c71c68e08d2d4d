#pragma once
// Runs a program as a child process, so that a crash or hang there does not happen here.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A running program. Messages go over its standard input, which is a socket. Its standard error is kept, to explain an
/// unexpected end.
///
/// Started by posix_spawn, which is safe in a process with threads and an initialised driver; continuing after fork is
/// not. It has a process group of its own, so that a terminal's signals do not reach it.
/// Threads: one at a time.
class ChildProcess {
 public:
  /// Errors: device_error  the program could not be started
  ChildProcess(std::string program, const std::vector<std::string>& arguments);
  /// Ends the program.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Sends a message and waits for its answer. Stops the host.
  /// Errors: device_error       the program ended; the message has how, and its last words
  ///         deadline_exceeded  no answer came in time; the program was ended
  std::string ask(std::string_view message, std::chrono::milliseconds deadline);
  /// Waits until the program has ended by itself, and returns its standard output. Stops the host.
  /// Errors: as `ask`; device_error  the program failed
  std::string output(std::chrono::milliseconds deadline);
  /// Whether a signal from outside ended the program, so that its end says nothing about its work.
  bool was_stopped() const noexcept { return stopped_; }
  /// Whether the program has ended by itself, with status 0.
  bool ended_well() const noexcept { return ended_well_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pipe {
    int descriptor = -1;
    std::string text;
  };
  /// Waits until the socket is ready for `events`; if `events` is 0, until both pipes are closed. Meanwhile collects
  /// the output of the pipes. False once the other end is closed.
  bool wait_for(short events, std::chrono::milliseconds deadline, Clock::time_point end);
  bool transfer(char* data, std::size_t size, short events, std::chrono::milliseconds deadline, Clock::time_point end);
  /// Returns the program's wait status. Ends the program if it still runs at `end`.
  int reap(Clock::time_point end) noexcept;
  /// How the program ended, with its last words; empty if it ended well.
  std::string ending(Clock::time_point end);
  std::string last_words();
  [[noreturn]] void fail_ended();

  std::string program_;
  int child_ = 0, socket_ = -1;
  Pipe out_, error_;
  bool stopped_ = false, ended_well_ = false;
};

/// Runs a program and returns its standard output. If it fails, the error has its standard error.
///
/// Stops the host until the program has ended; a program that takes longer than `deadline` is ended.
/// Errors: device_error, deadline_exceeded  it could not be started, crashed, failed, or took too long
std::string output_of(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds deadline);

/// The side of a program that runs as a ChildProcess. False once the other end is closed.
bool receive_message(int socket, std::string& message);
bool send_message(int socket, std::string_view message);

/// Path of the helper program (tools/helpers), which is installed in a folder beside this library. A program that
/// contains the library finds it beside itself, or beside the library that the program was installed with.
std::string helper_program();

}  // namespace moecl
