#pragma once
#include <moecl/cl_handles.hpp>
#include <moecl/event.hpp>

#include <cstdint>
#include <utility>

namespace moecl {

class Context;
class Trace;
struct Device;

/// A non-owning view of an in-order command queue, passed by value.
///
/// Threads: a stream is driven by one thread at a time; different streams may run in different threads.
struct StreamView {
  Context* context = nullptr;
  const Device* device = nullptr;
  _cl_command_queue* queue = nullptr;
  Trace* trace = nullptr;  ///< where commands are recorded; null: nowhere
  /// Calls enqueue nothing: a launch only compiles its kernel, transfers and markers do nothing.
  bool compiles_only = false;

  /// Stops the host until everything enqueued so far has completed.
  /// Errors: device_error  a command failed while this waited for it, where DeviceCaps::finish_reports_failures. A
  ///         command that failed earlier reports it in its own Event alone. Also: the driver refused to set an event
  ///         of a group of ranks, and the commands that may wait for it did not end for 2 s
  void finish() const;
  /// Hands the enqueued commands to the device without waiting.
  void flush() const;
  /// An event that completes when everything enqueued so far has. Async; nothing is flushed.
  Event record() const;
  /// A second queue on the same device, for commands that may run at the same time. It is traced like this queue, made
  /// on first use, and released with a Stream of this queue. Errors: as Stream
  StreamView side() const;
};

/// No work, but honours `submit`: waits on its list, then completes its event. Enqueues nothing when both are empty.
void enqueue_marker(StreamView stream, const Submit& submit);

/// Owner of an in-order command queue.
class Stream {
 public:
  Stream() = default;
  /// Makes a queue. In a context that traces, the queue is traced and has event profiling unless `traced` is false
  /// (profiling costs up to 10 us a command, so timed runs go without).
  explicit Stream(Context& context, std::size_t device_index = 0, bool traced = true);
  /// Retains the caller's queue, which must be in-order and belong to the context.
  /// Errors: invalid_argument  the queue is out-of-order, or of another context or device
  static Stream borrow(Context& context, _cl_command_queue* queue);
  /// Makes another queue on the device of `of`, in its context.
  static Stream beside(StreamView of, bool traced = true);

  Stream(Stream&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Stream();

  StreamView view() const noexcept { return view_; }
  operator StreamView() const noexcept { return view_; }
  void finish() const { view_.finish(); }

 private:
  StreamView view_;
};

}  // namespace moecl
