#pragma once
// Work that a pass does beside its stream, on the stream's side queue.
#include <moecl/stream.hpp>

namespace moecl {

/// The work begins after all commands that the stream got before. The stream waits for it at `join`, or when this
/// object is destroyed, also after an error. So once the stream has finished, nothing uses the caller's memory.
class SideWork {
 public:
  SideWork() = default;
  /// @param enqueue  Called with the side queue
  template <class Enqueue>
  SideWork(StreamView stream, const Enqueue& enqueue) : SideWork(stream) {
    enqueue(side_);
    end();
  }
  SideWork(SideWork&& other) noexcept { *this = std::move(other); }
  SideWork& operator=(SideWork&& other) noexcept {
    std::swap(stream_, other.stream_), std::swap(side_, other.side_), std::swap(done_, other.done_);
    return *this;
  }
  ~SideWork();

  /// Commands that follow on the stream wait for the work.
  void join();

 private:
  explicit SideWork(StreamView stream);
  void end();

  StreamView stream_, side_;  ///< side_ has no queue: nothing is left to wait for
  Event done_;
};

}  // namespace moecl
