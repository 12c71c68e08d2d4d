#include "runtime/atomic_file.hpp"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

/// What was asked of the disk, in order.
std::vector<std::string> calls;

std::string path_of(int descriptor) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string();
}

}  // namespace
}  // namespace moecl::test

// In the place of the C library's, for the library under test too.
extern "C" int fsync(int descriptor) {
  moecl::test::calls.push_back("sync " + moecl::test::path_of(descriptor));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  moecl::test::calls.push_back("rename to " + std::string(to));
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace moecl::test {
namespace {

using ::testing::ElementsAre;

void write(const std::string& path, Durability durability) {
  calls.clear();
  AtomicFile file(path, durability);
  file.write("whole", 5);
  file.commit();
}

TEST(AtomicFileTest, IsOnTheDiskBeforeItsNameIsAndTheNameBeforeCommitReturns) {
  const TempDir dir;
  const std::string path = dir.file("file");
  write(path, Durability::power_loss);
  EXPECT_THAT(calls, ElementsAre("sync " + path + "." + std::to_string(getpid()) + "-0.tmp", "rename to " + path,
                                 "sync " + dir.path()));
  EXPECT_EQ(read_text(path), "whole");
}

TEST(AtomicFileTest, NeedNotWaitForTheDisk) {
  const TempDir dir;
  write(dir.file("file"), Durability::process);
  EXPECT_THAT(calls, ElementsAre("rename to " + dir.file("file")));
}

TEST(AtomicFileTest, LeavesNothingUncommitted) {
  const TempDir dir;
  {
    AtomicFile file(dir.file("file"));
    file.write("half", 4);
    EXPECT_EQ(dir.entries(), 1u);
  }
  EXPECT_EQ(dir.entries(), 0u);
}

}  // namespace
}  // namespace moecl::test
