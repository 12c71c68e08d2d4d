#include "dispatch/processes/rows_access.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/host_address.hpp"

namespace moecl {
namespace {

/// Enqueues a command that waits for `when`, and adds its event to `pending`.
template <class Enqueue>
void pend(const Event& when, std::vector<Event>& pending, Enqueue enqueue) {
  _cl_event* const first = when.handle();
  enqueue(Submit{WaitList(&first, first != nullptr ? 1U : 0U), &pending.emplace_back()});
}

}  // namespace

RowsAccess::RowsAccess(StreamView stream, std::shared_ptr<const Event> when)
    : stream_(stream), when_(std::move(when)), in_place_(host_shares_memory(*stream.context)) {}

void RowsAccess::wait(GroupFate& fate) const {
  if (in_place_) fate.wait(*when_);
}

std::byte* RowsAccess::address(const BufferView& part) const { return host_address(stream_, part); }

std::size_t RowsAccess::part_of(std::size_t bytes) const noexcept {
  constexpr std::size_t in_cache = 256 << 10;
  return in_place_ ? std::min(bytes, in_cache) : bytes;
}

void RowsAccess::read(const BufferView& part, std::byte* host, std::vector<Event>& pending) const {
  if (in_place_)
    std::memcpy(host, address(part), part.size_bytes);
  else
    pend(*when_, pending, [&](Submit submit) { enqueue_read(stream_, part, host, part.size_bytes, submit); });
}

void RowsAccess::write(const BufferView& part, const std::byte* host, std::vector<Event>& pending) const {
  if (in_place_)
    std::memcpy(address(part), host, part.size_bytes);
  else
    pend(*when_, pending, [&](Submit submit) { enqueue_write(stream_, part, host, part.size_bytes, submit); });
}

}  // namespace moecl
