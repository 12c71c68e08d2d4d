#include "tools/own_files.hpp"

#include <moecl/error.hpp>

#include <fmt/format.h>

#include <filesystem>

namespace moecl::cli {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  if (fs::equivalent(a, b, failed)) return true;
  // Either file may not exist yet.
  const fs::path to = fs::weakly_canonical(fs::absolute(a, failed), failed);
  return !to.empty() && to == fs::weakly_canonical(fs::absolute(b, failed), failed);
}

}  // namespace

void expect_own_files(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read) {
  std::vector<NamedFile> others = read;
  for (const NamedFile& file : written) {
    for (const NamedFile& other : others)
      if (!file.path.empty() && !other.path.empty() && is_same_file(file.path, other.path))
        throw Error(ErrorCode::invalid_argument, fmt::format("{} {}: expected another file than {} {}", file.option,
                                                             file.path, other.option, other.path));
    others.push_back(file);
  }
}

}  // namespace moecl::cli
