#pragma once
#include <moecl/cl_handles.hpp>
#include <moecl/event.hpp>

#include <cstdint>
#include <utility>

namespace moecl {

class Context;
class Trace;
struct Device;

/// An in-order command queue to enqueue on, by value. Owns nothing.
///
/// Threads: a stream is driven by one thread at a time; different streams may run in different threads.
struct StreamView {
  Context* context = nullptr;
  const Device* device = nullptr;
  _cl_command_queue* queue = nullptr;
  Trace* trace = nullptr;  ///< where commands are recorded; null: nowhere
  /// What is enqueued is not: kernels are compiled for such launches, transfers and markers are nothing.
  bool compiles_only = false;

  /// Stops the host until everything enqueued so far has completed.
  /// Errors: device_error  a command failed while this waited for it, where DeviceCaps::finish_reports_failures; a
  ///         failure before that is known to the command's own Event alone. Or the driver refused to set an event of a
  ///         group of ranks that commands may wait for, and they did not end for 2 s
  void finish() const;
  /// Hands the enqueued commands to the device without waiting.
  void flush() const;
  /// An event that completes when everything enqueued so far has. Async; nothing is flushed.
  Event record() const;
  /// A queue for what may run at the same time: beside this one on its device, traced like it, made when first asked
  /// for. It goes when a Stream of this queue goes. Errors: as Stream
  StreamView side() const;
};

/// No work, but honours `submit`: waits on its list, then completes its event. Enqueues nothing when both are empty.
void enqueue_marker(StreamView stream, const Submit& submit);

/// Owner of an in-order command queue.
class Stream {
 public:
  Stream() = default;
  /// A queue of its own, with event profiling when it is traced: in a context that traces, unless `traced` is false
  /// (profiling costs up to 10 us a command, so timed runs go without).
  explicit Stream(Context& context, std::size_t device_index = 0, bool traced = true);
  /// Retains the caller's queue, which must be in-order and belong to the context.
  /// Errors: invalid_argument  the queue is out-of-order, or of another context or device
  static Stream borrow(Context& context, _cl_command_queue* queue);
  /// Another queue on the device of `of`, in its context.
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
