#pragma once
// The folder of compiled programs: its files, and what `moecl cache` shows and removes.
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moecl {

/// 128-bit XXH3 of everything that a compiled program depends on.
struct CacheKey {
  std::uint64_t high = 0, low = 0;
};

/// One program on disk.
struct CacheEntry {
  std::string path, program, device;  ///< program and device are empty where the header is damaged
  std::string notes;                  ///< the writer's notes about the binary
  std::uint64_t size_bytes = 0;
  std::chrono::system_clock::time_point last_use;
};

/// One file for each program, `<key in hex>.clprogram`: a header (magic, format, key, sizes, XXH3-64 checksum), the
/// names of program and device, notes of the writer, the driver's binary. A file is written under another name and then
/// renamed, so processes may share a folder and may be killed at any time. Nothing waits for the disk: the checksum
/// detects damage by a loss of power. The time of last use is the file's modification time. Only regular files of this
/// user are read.
///
/// Threads: safe. Errors: io_error from every function, invalid_data from `read`
class CacheFolder {
 public:
  /// Changes whenever the layout of the file does.
  static constexpr std::uint32_t format = 3;

  explicit CacheFolder(std::string dir) : dir_(std::move(dir)) {}
  /// $MOECL_CACHE_DIR, else $XDG_CACHE_HOME/moecl/cl, else $HOME/.cache/moecl/cl; empty when none is set.
  static std::string default_dir();

  const std::string& dir() const noexcept { return dir_; }
  /// Nullopt when there is no such entry. A damaged file is removed and reported as invalid_data.
  struct Content {
    std::string notes;
    std::vector<unsigned char> binary;
    bool operator==(const Content&) const = default;
  };
  std::optional<Content> read(const CacheKey& key) const;
  /// Creates the folder if need be, with mode 0700.
  void write(const CacheKey& key, std::string_view program, std::string_view device, const Content& content) const;
  /// The lock of an entry, held by one writer of all processes at a time. It ends with its process.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    friend class CacheFolder;
    int file_ = -1;
  };
  /// The result is not held if `patience` ran out, or where the file system has no locks.
  Lock lock(const CacheKey& key, std::chrono::milliseconds patience) const;
  /// Least recently used first. Empty: a folder that does not exist has no entries.
  std::vector<CacheEntry> entries() const;
  /// Removes entries, least recently used first, until at most `max_bytes` are left. Also removes temporary files of
  /// writers that died. Returns the number of entries removed.
  std::size_t prune(std::uint64_t max_bytes) const;
  std::size_t clear() const { return prune(0); }

 private:
  void make() const;
  std::string path_of(const CacheKey& key) const;
  /// Compiled code is run, so a folder that others may write or replace is not trusted.
  void expect_private() const;

  std::string dir_;
};

}  // namespace moecl
