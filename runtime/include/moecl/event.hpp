#pragma once
#include <moecl/cl_handles.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace moecl {

/// Owner of one reference to a cl_event. Empty means "already complete".
class Event {
 public:
  Event() = default;
  /// Takes over the caller's reference.
  explicit Event(_cl_event* adopted) noexcept : handle_(adopted) {}
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  _cl_event* handle() const noexcept { return handle_; }
  /// Gives the reference to the caller.
  _cl_event* release() noexcept { return std::exchange(handle_, nullptr); }

  /// Stops the host until the event completes. For an event of a rank's stream use Communicator::wait, which also ends
  /// if the driver refuses to set an event that commands wait for. Errors: device_error  a command before it failed
  void wait() const;
  /// Never blocks. Errors: device_error  the command failed
  bool is_complete() const;

 private:
  _cl_event* handle_ = nullptr;
};

/// Events that must complete before a command starts. Owns nothing. The caller leaves out empty events.
struct WaitList {
  _cl_event* const* events = nullptr;
  std::uint32_t count = 0;

  WaitList() = default;
  WaitList(_cl_event* const* first, std::uint32_t n) : events(n != 0 ? first : nullptr), count(n) {}
  WaitList(const std::vector<_cl_event*>& list) : WaitList(list.data(), static_cast<std::uint32_t>(list.size())) {}
};

/// Dependencies of a command: the events it waits for (besides the stream's own order), and where its event goes.
struct Submit {
  WaitList wait;
  /// Receives an event that completes with the operation's last command. An event costs, so ask only where needed.
  /// Nothing is flushed: call StreamView::flush before another queue waits for the event or the host polls it.
  /// Event::wait flushes.
  Event* done = nullptr;
};

}  // namespace moecl
