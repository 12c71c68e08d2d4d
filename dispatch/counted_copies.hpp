#pragma once
// Copies whose sizes stand in a table on the device. A host thread reads the table once it is written.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <cstdint>
#include <functional>
#include <vector>

#include "dispatch/meeting.hpp"

namespace moecl {

template <class Copy>
struct CountedCopies {
  HeldView table;              ///< of i32
  std::vector<HeldView> into;  ///< what the copies write
  std::function<std::vector<Copy>(const std::vector<std::int32_t>& table)> copies_of;

  explicit operator bool() const noexcept { return copies_of != nullptr; }
  /// Reads the table by `queue`, once `ready` has completed, and returns the copies. Blocks this thread.
  std::vector<Copy> read(StreamView queue, const Event& ready, GroupFate& fate) const {
    std::vector<std::int32_t> numbers(table.size_bytes / sizeof(std::int32_t));
    _cl_event* const written = ready.handle();
    Event here;
    enqueue_read(queue, table, numbers.data(), table.size_bytes,
                 {WaitList(&written, written != nullptr ? 1U : 0U), &here});
    queue.flush();
    fate.wait(here);
    return copies_of(numbers);
  }
};

}  // namespace moecl
