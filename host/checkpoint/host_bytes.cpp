#include <moecl/host_bytes.hpp>

#include <cstring>
#include <vector>

#include "host/checkpoint/input_file.hpp"

namespace moecl {

HostBytes HostBytes::operator+(std::int64_t bytes) const {
  HostBytes further = *this;
  if (file_ == nullptr)
    further.memory_ = {memory_, memory_.get() + bytes};
  else
    further.offset_ += static_cast<std::uint64_t>(bytes);
  return further;
}

std::optional<std::int64_t> HostBytes::distance_from(const HostBytes& origin) const noexcept {
  if (file_ != origin.file_) return std::nullopt;
  if (file_ != nullptr) return static_cast<std::int64_t>(offset_ - origin.offset_);
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory()) -
                                   reinterpret_cast<std::uintptr_t>(origin.memory()));
}

void HostBytes::read(void* to, std::uint64_t size) const {
  if (size == 0) return;  // an empty tensor may have no memory
  if (file_ == nullptr)
    std::memcpy(to, memory(), size);
  else
    file_->read(offset_, to, size);
}

HostBytes HostBytes::owned(std::shared_ptr<std::vector<std::byte>> bytes) {
  HostBytes here;
  here.memory_ = {bytes, bytes->data()};
  return here;
}

HostBytes HostBytes::copy_of(const void* memory, std::uint64_t size) {
  const auto* first = static_cast<const std::byte*>(memory);
  return owned(std::make_shared<std::vector<std::byte>>(first, first + size));
}

HostBytes HostBytes::in_memory(std::uint64_t size) const {
  if (file_ == nullptr) return *this;
  auto copy = std::make_shared<std::vector<std::byte>>(size);
  read(copy->data(), size);
  return owned(std::move(copy));
}

}  // namespace moecl
