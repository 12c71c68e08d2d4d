#pragma once
#include <cstddef>
#include <string>

namespace moecl {

/// A file that appears whole or not at all: written beside its final name and renamed by `commit`.
class AtomicFile {
 public:
  /// Errors: io_error  the folder takes no new file, or `path` exists and is no regular file
  explicit AtomicFile(std::string path);
  /// Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Errors: io_error, for example a full disk
  void write(const void* data, std::size_t size_bytes);
  /// Replaces an older file of that name. Errors: io_error
  void commit();

 private:
  [[noreturn]] void fail_io(const char* what) const;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace moecl
