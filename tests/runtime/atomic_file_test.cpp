#include "runtime/atomic_file.hpp"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

/// The thread's calls to the disk, in order; null: not recorded. Per thread, as drivers' threads make such calls too.
thread_local std::vector<std::string>* calls = nullptr;

std::string path_of(int descriptor) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string();
}

}  // namespace
}  // namespace moecl::test

// These functions replace those of the C library, for the library under test too.
extern "C" int fsync(int descriptor) {
  if (moecl::test::calls) moecl::test::calls->push_back("sync " + moecl::test::path_of(descriptor));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (moecl::test::calls) moecl::test::calls->push_back("rename to " + std::string(to));
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace moecl::test {
namespace {

using ::testing::ElementsAre;

struct Calls {
  std::vector<std::string> made;
  Calls() { calls = &made; }
  ~Calls() { calls = nullptr; }
};

std::vector<std::string> calls_of_write(const std::string& path, Durability durability) {
  Calls of_write;
  AtomicFile file(path, durability);
  file.write("whole", 5);
  file.commit();
  return of_write.made;
}

TEST(AtomicFileTest, IsOnTheDiskBeforeItsNameIsAndTheNameBeforeCommitReturns) {
  const TempDir dir;
  const std::string path = dir.file("file");
  EXPECT_THAT(calls_of_write(path, Durability::power_loss),
              ElementsAre("sync " + path + "." + std::to_string(getpid()) + "-0.tmp", "rename to " + path,
                          "sync " + dir.path()));
  EXPECT_EQ(read_text(path), "whole");
}

TEST(AtomicFileTest, NeedNotWaitForTheDisk) {
  const TempDir dir;
  EXPECT_THAT(calls_of_write(dir.file("file"), Durability::process), ElementsAre("rename to " + dir.file("file")));
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
