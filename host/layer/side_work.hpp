#pragma once
// What a pass does beside its stream, on the stream's side queue.
#include <moecl/stream.hpp>

namespace moecl {

/// It begins after what the stream was given before. The stream waits for it from `join` on, or from the end of this
/// object, also after an error. So once the stream has finished, nothing uses the caller's memory.
class SideWork {
 public:
  SideWork() = default;
  /// @param enqueue  Gets the queue
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

  /// What comes next on the stream waits for it.
  void join();

 private:
  explicit SideWork(StreamView stream);
  void end();

  StreamView stream_, side_;  ///< `side_` without a queue: nothing is left to wait for
  Event done_;
};

}  // namespace moecl
