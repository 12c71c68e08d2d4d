#pragma once
// That a command's outputs take the place of nothing it reads, nor of each other.
#include <string>
#include <vector>

namespace moecl::cli {

/// A file, and the option or argument that names it. No path: the option was not given.
struct NamedFile {
  std::string option, path;
};

/// Links to one file are that file.
/// Errors: invalid_argument  a file would be written and read, or written twice
void expect_own_files(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read);

}  // namespace moecl::cli
