#pragma once
// Host access to rows in device memory: in place if the device uses the host's memory, otherwise by copy commands.
#include <moecl/buffer.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include "dispatch/meeting.hpp"

namespace moecl {

/// Access to the memory that one exchange reads, or to the memory that it writes.
class RowsAccess {
 public:
  /// @param when  completes when rows may be read, or may be overwritten. Lifetime: the stream outlives this
  RowsAccess(StreamView stream, std::shared_ptr<const Event> when);
  /// Stops the host until rows may be accessed in place. Returns at once where copy commands wait for `when` instead.
  void wait(GroupFate& fate) const;
  /// `in_place`: whether rows are accessed without a copy; `address`: their host address then.
  bool in_place() const noexcept { return in_place_; }
  std::byte* address(const BufferView& part) const;
  /// How many of `bytes` to move at a time, so that both sides work at once.
  std::size_t part_of(std::size_t bytes) const noexcept;
  /// `read` copies a part of the rows to the host, `write` from the host. Adds an event to `pending` if the copy is not
  /// done on return. Lifetime: `host` stays valid until then
  void read(const BufferView& part, std::byte* host, std::vector<Event>& pending) const;
  void write(const BufferView& part, const std::byte* host, std::vector<Event>& pending) const;
  void flush() const { stream_.flush(); }

 private:
  StreamView stream_;
  std::shared_ptr<const Event> when_;
  bool in_place_;
};

}  // namespace moecl
