#pragma once
// An event that the host completes, for commands that wait for work outside their context.
#include <moecl/event.hpp>

#include <atomic>

namespace moecl {

class Context;

class UserEvent {
 public:
  /// The event is counted in the context's counters. The context outlives the event.
  explicit UserEvent(Context& context);
  /// Completes the event: NVIDIA's driver hangs when a context is destroyed with an unset event.
  ~UserEvent() { complete(); }
  UserEvent(const UserEvent&) = delete;
  UserEvent& operator=(const UserEvent&) = delete;

  _cl_event* handle() const noexcept { return event_.handle(); }
  /// Lets the commands that wait for it go on. Later calls do nothing. Threads: safe
  /// @return  Whether they go on. False if the driver refuses, also on a second try: then they never run
  bool complete() noexcept;

 private:
  Context& context_;
  Event event_;
  std::atomic<bool> completed_{false};
};

}  // namespace moecl
