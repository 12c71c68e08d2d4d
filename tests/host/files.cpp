#include "tests/host/files.hpp"

namespace moecl::test {

std::string data_path(const std::string& relative) {
  namespace fs = std::filesystem;
  const fs::path bundled = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "tests/data";
  return ((fs::is_directory(bundled) ? bundled : fs::path(MOECL_TEST_DATA)) / relative).string();
}

}  // namespace moecl::test
