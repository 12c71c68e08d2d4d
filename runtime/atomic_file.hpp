#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace moecl {

/// What `AtomicFile::commit` waits for.
enum class Durability : std::uint8_t {
  power_loss,  ///< until the disk has the file and its name
  process      ///< for nothing: if the machine stops, the file may be torn or empty, which its reader must detect
};

/// A file that appears whole or not at all: it is written beside its final name, and `commit` renames it.
class AtomicFile {
 public:
  /// Errors: io_error  the folder takes no new file, or `path` exists and is no regular file
  explicit AtomicFile(std::string path, Durability durability = Durability::power_loss);
  /// Removes the file unless it was committed.
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
  Durability durability_;
  int descriptor_ = -1;
};

/// Waits until the disk has the names in a folder, also those of files that were renamed into it. Errors: io_error
void sync_folder(const std::string& folder);

}  // namespace moecl
