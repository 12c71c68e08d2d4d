#pragma once
// How the host gets at rows of a device: in place, where its memory is the host's, else by commands that copy.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include "dispatch/meeting.hpp"

namespace moecl {

/// Of what is read in one exchange, or of what is written.
class RowsAccess {
 public:
  /// @param when  the device has what is read, or nobody needs what is overwritten. Lifetime: the stream outlives it
  RowsAccess(StreamView stream, std::shared_ptr<const Event> when);
  /// Stops the host until rows may be touched in place; where commands wait for that, not at all.
  void wait(GroupFate& fate) const;
  /// Whether rows are touched where they are, and where that is.
  bool in_place() const noexcept { return in_place_; }
  std::byte* address(const BufferView& part) const;
  /// How many bytes to move at a time, of so many, so that both sides work at once.
  std::size_t part_of(std::size_t bytes) const noexcept;
  /// A part of them to the host or from there. Adds an event where that is not done on return. Lifetime: `host` until
  /// then
  void read(const BufferView& part, std::byte* host, std::vector<Event>& pending) const;
  void write(const BufferView& part, const std::byte* host, std::vector<Event>& pending) const;
  void flush() const { stream_.flush(); }

 private:
  StreamView stream_;
  std::shared_ptr<const Event> when_;
  bool in_place_;
};

}  // namespace moecl
