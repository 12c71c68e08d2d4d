#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace moecl {

class InputFile;

/// Where the bytes of a tensor begin: in the caller's memory, or in a file, which is read when bytes are asked for.
/// Neither promises alignment.
///
/// Lifetime: the caller's memory is not owned; a file stays open as long as anything refers to bytes of it.
class HostBytes {
 public:
  HostBytes() = default;
  HostBytes(const void* memory) noexcept  // NOLINT(google-explicit-constructor): a pointer is such a place
      : memory_(std::shared_ptr<void>(), static_cast<const std::byte*>(memory)) {}
  HostBytes(std::shared_ptr<const InputFile> file, std::uint64_t offset) noexcept
      : file_(std::move(file)), offset_(offset) {}

  /// A copy of the bytes. It lives as long as the last HostBytes that refers to it
  static HostBytes copy_of(const void* memory, std::uint64_t size);

  bool present() const noexcept { return memory_ != nullptr || file_ != nullptr; }
  /// nullptr if the bytes are in a file.
  const std::byte* memory() const noexcept { return memory_.get(); }
  /// The position `bytes` further on.
  HostBytes operator+(std::int64_t bytes) const;
  /// Distance in bytes from `origin`; nullopt if the two are in different files, or only one of them is in memory.
  std::optional<std::int64_t> distance_from(const HostBytes& origin) const noexcept;

  /// Copies the first `size` bytes.
  /// Errors: io_error  the file cannot be read, or has become shorter since it was opened
  void read(void* to, std::uint64_t size) const;
  /// The same bytes if they are in memory already, else a copy of the first `size` bytes, which lives as long as the
  /// result. Errors: as `read`
  HostBytes in_memory(std::uint64_t size) const;

 private:
  static HostBytes owned(std::shared_ptr<std::vector<std::byte>> bytes);

  std::shared_ptr<const std::byte> memory_;  ///< has no owner if the memory is the caller's
  std::shared_ptr<const InputFile> file_;
  std::uint64_t offset_ = 0;  ///< in the file
};

}  // namespace moecl
