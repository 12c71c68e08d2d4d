#pragma once
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace moecl::fuzz {

/// A file in memory that has a path, for readers that open files.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) std::abort();
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void assign(const std::string& bytes) const {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace moecl::fuzz
