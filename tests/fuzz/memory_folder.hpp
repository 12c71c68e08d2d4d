#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace moecl::fuzz {

/// A folder in memory, for readers of several files.
class MemoryFolder {
 public:
  MemoryFolder() : path_("/dev/shm/moecl_fuzz_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~MemoryFolder() { std::filesystem::remove_all(path_); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes the bytes, followed by `zeros` zero bytes.
  void write(const std::string& name, const std::string& bytes, std::uint64_t zeros = 0) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    if (zeros != 0) std::filesystem::resize_file(file(name), bytes.size() + zeros);
  }

 private:
  std::string path_;
};

}  // namespace moecl::fuzz
