#pragma once
#include <cstdint>
#include <string>

namespace moecl {

/// A file that stays open as long as this object. It is read and not mapped, because a mapped file that becomes shorter
/// ends the process. Removing or replacing the path does not change what is read here.
///
/// Threads: all members may be called from several threads.
class InputFile {
 public:
  /// Errors: io_error  `path` is no regular file, or cannot be opened
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// The size when the file was opened.
  std::uint64_t size() const noexcept { return size_; }
  /// Copies bytes [offset, offset + size) to `to`.
  /// Errors: io_error  the device fails, or the file has become shorter
  void read(std::uint64_t offset, void* to, std::uint64_t size) const;
  std::string text(std::uint64_t offset, std::uint64_t size) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace moecl
