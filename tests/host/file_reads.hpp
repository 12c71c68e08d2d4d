#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <string>

namespace moecl::test {

/// While it lives, decides how reads of files in a folder end. Reads of other files are normal. Interposes pread.
class FileReads {
 public:
  struct Fate {
    int error = 0;                                               ///< the errno that the read fails with
    std::size_t most = std::numeric_limits<std::size_t>::max();  ///< the most bytes that it returns
  };
  /// @param fate_of  gives the fate of the n-th read, counted from 0; called before the read
  FileReads(std::string folder, std::function<Fate(std::size_t n)> fate_of);
  ~FileReads();
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;

  std::size_t count() const noexcept { return count_; }
  /// Called by pread: the fate of this read of the file. Counts the read if the file is in the folder.
  Fate next(const std::string& path);

 private:
  std::string folder_;
  std::function<Fate(std::size_t n)> fate_of_;
  std::size_t count_ = 0;
};

}  // namespace moecl::test
