#pragma once
#include <cstddef>
#include <string>

namespace moecl {

/// A file that appears under its name only when complete: bytes go to a temporary file beside it, `commit` renames it.
class AtomicFile {
 public:
  /// Errors: io_error  the temporary file cannot be made
  explicit AtomicFile(std::string path);
  /// Without a commit nothing is left behind.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Errors: io_error
  void write(const void* data, std::size_t size_bytes);
  /// Errors: io_error
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* what) const;

  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace moecl
