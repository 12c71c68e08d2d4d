#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <string>

namespace moecl::test {

/// While it lives, says how reads of files in a folder go; reads of other files go as ever. Interposes pread.
class FileReads {
 public:
  struct Fate {
    int error = 0;                                               ///< the errno that the read fails with
    std::size_t most = std::numeric_limits<std::size_t>::max();  ///< bytes that it gives
  };
  /// @param fate_of  of the n-th read, counted from 0; called before it
  FileReads(std::string folder, std::function<Fate(std::size_t n)> fate_of);
  ~FileReads();
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;

  std::size_t count() const noexcept { return count_; }
  /// For pread: the fate of a read of the file, whose turn it is then.
  Fate next(const std::string& path);

 private:
  std::string folder_;
  std::function<Fate(std::size_t n)> fate_of_;
  std::size_t count_ = 0;
};

}  // namespace moecl::test
