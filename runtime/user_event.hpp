#pragma once
// An event that the host completes, for commands that wait for work outside their context.
#include <moecl/event.hpp>

#include <atomic>

namespace moecl {

class Context;

class UserEvent {
 public:
  /// Counted in the context's counters, which outlives it.
  explicit UserEvent(Context& context);
  /// Completes it: NVIDIA's driver hangs when a context goes with an event unset.
  ~UserEvent() { complete(); }
  UserEvent(const UserEvent&) = delete;
  UserEvent& operator=(const UserEvent&) = delete;

  _cl_event* handle() const noexcept { return event_.handle(); }
  /// Lets the commands that wait for it go on. Later calls do nothing. Threads: safe
  /// @return  Whether they do; false where the driver refuses, also when asked again: they never run
  bool complete() noexcept;

 private:
  Context& context_;
  Event event_;
  std::atomic<bool> completed_{false};
};

}  // namespace moecl
