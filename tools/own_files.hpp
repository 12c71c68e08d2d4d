#pragma once
// Checks that a command's outputs overwrite neither its inputs nor each other.
#include <string>
#include <vector>

namespace moecl::cli {

/// A file, and the option or argument that names it. An empty path: the option was not given.
struct NamedFile {
  std::string option, path;
};

/// Links to the same file count as that file.
/// Errors: invalid_argument  a file would be written and read, or written twice
void expect_own_files(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read);

}  // namespace moecl::cli
