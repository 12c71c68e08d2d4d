#pragma once
// A program that is run aside, so that what crashes or hangs there does not do so here.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A running program that is spoken to by messages over its standard input, a socket. What it writes to standard error
/// is kept for who asks why it ended.
///
/// Started by posix_spawn, which is safe in a process with threads and an initialised driver, where going on after fork
/// is not, and in a process group of its own, so that a terminal's signals do not reach it.
/// Threads: one at a time.
class ChildProcess {
 public:
  /// Errors: device_error  it could not be started
  ChildProcess(std::string program, const std::vector<std::string>& arguments);
  /// Ends it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Sends a message and waits for its answer. Stops the host.
  /// Errors: device_error       it ended: how, and its last words
  ///         deadline_exceeded  no answer came in time; it was ended
  std::string ask(std::string_view message, std::chrono::milliseconds deadline);
  /// What it writes to standard output until it has ended by itself. Stops the host.
  /// Errors: as `ask`; device_error  it failed
  std::string output(std::chrono::milliseconds deadline);
  /// Whether somebody else ended it by a signal, so that its end says nothing about what it did.
  bool was_stopped() const noexcept { return stopped_; }
  /// Whether it has ended by itself, with status 0.
  bool ended_well() const noexcept { return ended_well_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pipe {
    int descriptor = -1;
    std::string text;
  };
  /// Waits until the socket is ready for `events`, or, for 0, until all pipes are closed; keeps what they say
  /// meanwhile. False once nobody is at the other end.
  bool wait_for(short events, std::chrono::milliseconds deadline, Clock::time_point end);
  bool transfer(char* data, std::size_t size, short events, std::chrono::milliseconds deadline, Clock::time_point end);
  /// Its wait status. One that has not ended by then is ended.
  int reap(Clock::time_point end) noexcept;
  /// How it ended, in words with its last ones; empty where it ended well.
  std::string ending(Clock::time_point end);
  std::string last_words();
  [[noreturn]] void fail_ended();

  std::string program_;
  int child_ = 0, socket_ = -1;
  Pipe out_, error_;
  bool stopped_ = false, ended_well_ = false;
};

/// What the program writes to its standard output. Its standard error is read too, and told if it fails.
///
/// Stops the host until the program has ended; one that takes longer than `deadline` is ended.
/// Errors: device_error, deadline_exceeded  it could not be started, crashed, failed, or took too long
std::string output_of(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds deadline);

/// Messages of a program that runs as a ChildProcess, on its side. False at the end of the conversation.
bool receive_message(int socket, std::string& message);
bool send_message(int socket, std::string_view message);

/// Path of the program (tools/helpers) that is installed with this library, in a folder beside it; a program that has
/// the library inside finds it beside itself, or beside the library that it was installed with.
std::string helper_program();

}  // namespace moecl
