#include <gmock/gmock.h>

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runtime/cache_folder.hpp"
#include "runtime/kernel.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// The files in a folder, without the lock file.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& file : fs::directory_iterator(folder))
    if (file.path().filename() != "lock") found.push_back(file.path().filename());
  return found;
}

const ProgramSource scaled{"scaled", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void scaled(__global int* x) {
  x[get_global_id(0)] = FACTOR * x[get_global_id(0)];
})"};

/// What a process that runs one small kernel sees.
struct Outcome {
  std::uint64_t built, from_disk;
  std::string log;
  std::vector<int> values;
};

class ProgramCacheTest : public OnEveryDevice {
 protected:
  Outcome run(const std::string& cache_dir, std::uint64_t max_bytes = 1 << 20,
              const char* options = "-DFACTOR=2") const {
    Outcome seen;
    ContextOptions settings;
    settings.log = [&](LogLevel, std::string_view line) { seen.log.append(line).append("\n"); };
    settings.log_level = LogLevel::warning;
    settings.disk_cache = true;
    settings.cache_dir = cache_dir;
    settings.cache_max_bytes = max_bytes;
    const auto context = Context::create(device().context->devices(), settings);
    // On a Hopper GPU the context has built or loaded its probe of sm_90a.
    const std::uint64_t built = context->counters().programs_built, from_disk = context->counters().programs_from_disk;
    const Stream stream(*context);
    const Buffer memory(*context, 3 * sizeof(int));
    seen.values = {1, 20, 300};
    write_blocking(stream, memory.view(), seen.values.data(), memory.size_bytes());
    launch(stream, {&scaled, options, "scaled"}, {{3, 1, 1}, {1, 1, 1}}, {}, {},
           TensorView(memory.view(), DType::i32, {3}));
    read_blocking(stream, memory.view(), seen.values.data(), memory.size_bytes());
    context->save_programs();
    seen.built = context->counters().programs_built - built;
    seen.from_disk = context->counters().programs_from_disk - from_disk;
    return seen;
  }
  /// The entries of program `scaled`.
  std::vector<CacheEntry> entries() const {
    std::vector<CacheEntry> all = CacheFolder(folder_).entries();
    std::erase_if(all, [](const CacheEntry& entry) { return entry.program != "scaled"; });
    return all;
  }
  /// Bytes of the context's own probe.
  std::uint64_t probe_bytes() const {
    std::uint64_t bytes = 0;
    for (const CacheEntry& entry : CacheFolder(folder_).entries())
      if (entry.program != "scaled") bytes += entry.size_bytes;
    return bytes;
  }
  const TempDir dir_;
  const std::string folder_ = dir_.file("a/b");
};
MOECL_ON_EVERY_DEVICE(ProgramCacheTest);

void expect_result(const Outcome& run, std::uint64_t built) {
  EXPECT_EQ(run.values, (std::vector<int>{2, 40, 600}));
  EXPECT_EQ(run.built, built) << run.log;
  EXPECT_EQ(run.from_disk, 1 - built) << run.log;
}

TEST_P(ProgramCacheTest, BuildsOnceAndLoadsAfterwards) {
  expect_result(run(folder_), 1);
  const Outcome warm = run(folder_);
  expect_result(warm, 0);
  EXPECT_EQ(warm.log, "");
}

TEST_P(ProgramCacheTest, KeepsItsFoldersPrivateAndLeavesNoTemporary) {
  run(folder_);
  for (const char* path : {"a", "a/b"}) {
    struct stat info {};
    ASSERT_EQ(stat(dir_.file(path).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u) << path;
  }
  EXPECT_THAT(files_in(folder_), Each(EndsWith(".clprogram")));
  EXPECT_EQ(files_in(folder_).size(), CacheFolder(folder_).entries().size());
  EXPECT_EQ(entries().size(), 1u);
}

TEST_P(ProgramCacheTest, TellsOptionsApart) {
  run(folder_);
  const Outcome other = run(folder_, 1 << 20, "-DFACTOR=5");
  EXPECT_EQ(other.built, 1u);
  EXPECT_EQ(other.values, (std::vector<int>{5, 100, 1500}));
}

TEST_P(ProgramCacheTest, ShowsWhatItHolds) {
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(2);
  run(folder_);
  const std::vector<CacheEntry> all = CacheFolder(folder_).entries();
  ASSERT_EQ(entries().size(), 1u);
  for (const CacheEntry& entry : all) {
    EXPECT_EQ(entry.device, device().caps().name);
    EXPECT_EQ(entry.size_bytes, fs::file_size(entry.path));
    EXPECT_GT(entry.last_use, before);
  }
  EXPECT_EQ(CacheFolder(folder_).clear(), all.size());
  EXPECT_TRUE(CacheFolder(folder_).entries().empty());
}

TEST_P(ProgramCacheTest, RemovesADamagedFileAndBuildsAgain) {
  run(folder_);
  const std::string path = entries().at(0).path, good = read_text(path);
  const std::size_t size = good.size();
  // One flipped bit in each part: magic, format, label size, key, binary size, label, binary.
  for (const std::size_t at : std::vector<std::size_t>{0, 9, 14, 20, 36, 50, size / 2, size - 1}) {
    SCOPED_TRACE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_text(path, bad);
    const Outcome rebuilt = run(folder_);
    expect_result(rebuilt, 1);
    EXPECT_THAT(rebuilt.log, HasSubstr("is damaged and was removed"));
    expect_result(run(folder_), 0);
  }
  for (const std::size_t kept : std::vector<std::size_t>{0, 47, 48, size - 1}) {
    SCOPED_TRACE(kept);
    write_text(path, good.substr(0, kept));
    expect_result(run(folder_), 1);
  }
  write_text(path, good + "x");
  expect_result(run(folder_), 1);
}

TEST_P(ProgramCacheTest, GoesOnWithoutAFolder) {
  write_text(dir_.file("file"), "");
  const Outcome no_folder = run(dir_.file("file"));
  expect_result(no_folder, 1);
  EXPECT_THAT(no_folder.log, HasSubstr("program cache: "));
  const Outcome below_a_file = run(dir_.file("file/x"));
  expect_result(below_a_file, 1);
  EXPECT_THAT(below_a_file.log, HasSubstr("Not a directory"));
  const Outcome nowhere = run("/proc/moecl/cl");  // not even root can make a folder there
  expect_result(nowhere, 1);
  EXPECT_THAT(nowhere.log, HasSubstr("cannot create folder"));
}

TEST_P(ProgramCacheTest, TrustsNoFolderThatOthersWrite) {
  run(folder_);
  ASSERT_EQ(chmod(folder_.c_str(), 0770), 0);
  const Outcome untrusted = run(folder_);
  expect_result(untrusted, 1);
  EXPECT_THAT(untrusted.log, HasSubstr("others cannot write"));
}

TEST_P(ProgramCacheTest, TrustsNoFolderThatOthersMayReplace) {
  run(folder_);
  ASSERT_EQ(chmod(dir_.file("a").c_str(), 0777), 0);
  const Outcome untrusted = run(folder_);
  expect_result(untrusted, 1);
  EXPECT_THAT(untrusted.log, HasSubstr("others may rename '" + folder_ + "'"));
  ASSERT_EQ(chmod(dir_.file("a").c_str(), 01777), 0);  // as /tmp
  expect_result(run(folder_), 0);
}

/// Folders have these modes under umask 002, where each user has a private group.
TEST_P(ProgramCacheTest, TrustsFoldersThatTheUsersOwnGroupWrites) {
  run(folder_);
  ASSERT_EQ(chmod(dir_.file("a").c_str(), 0775), 0);
  expect_result(run(folder_), 0);
}

TEST_P(ProgramCacheTest, TrustsNoFolderInThoseOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  run(folder_);
  const std::string above = dir_.file("a");
  const auto expect_refused = [&](const char* why) {
    const Outcome untrusted = run(folder_);
    expect_result(untrusted, 1);
    EXPECT_THAT(untrusted.log, HasSubstr("others may rename '" + folder_ + "', as '" + above + "' " + why));
  };
  ASSERT_EQ(chown(above.c_str(), 0, 12345), 0);
  ASSERT_EQ(chmod(above.c_str(), 0775), 0);
  expect_refused("lets them write without a sticky bit");
  ASSERT_EQ(chmod(above.c_str(), 01775), 0);
  expect_result(run(folder_), 0);
  ASSERT_EQ(chown(above.c_str(), 12345, 0), 0);
  expect_refused("is another user's");
  ASSERT_EQ(chown(above.c_str(), 0, 0), 0);
}

/// In the place of an entry, a FIFO is not waited for and a link is not followed.
TEST_P(ProgramCacheTest, ReadsRegularFilesOfThisUserAlone) {
  run(folder_);
  const std::string path = entries().at(0).path;
  const auto expect_refused = [&] {
    EXPECT_LE(CacheFolder(folder_).entries().size(), 2u);  // the context's own probe may be there too
    const Outcome rebuilt = run(folder_);
    expect_result(rebuilt, 1);
    EXPECT_THAT(rebuilt.log, HasSubstr("is no regular file of this user"));
    expect_result(run(folder_), 0);
  };
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused();
  fs::rename(path, dir_.file("elsewhere"));
  fs::create_symlink(dir_.file("elsewhere"), path);
  expect_refused();
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  expect_refused();
  if (geteuid() != 0) return;  // only root may give files away
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  expect_refused();
}

/// A limit on the size of files stands in for a full disk: the write fails halfway.
TEST(CacheFolderTest, LeavesNothingWhenTheDiskIsFull) {
  const TempDir dir;
  const CacheFolder folder(dir.path());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = error_of([&] { folder.write({1, 2}, "p", "d", {"", std::vector<unsigned char>(1000)}); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.what(), HasSubstr("File too large"));
  EXPECT_EQ(dir.entries(), 0u);
}

TEST_P(ProgramCacheTest, StaysBelowItsCap) {
  run(folder_, 1 << 20, "-DFACTOR=2");
  const CacheEntry first = entries().at(0);
  const std::uint64_t cap = probe_bytes() + first.size_bytes * 5 / 2;
  run(folder_, cap, "-DFACTOR=3");
  const std::string second = entries().at(1).path;
  run(folder_, cap, "-DFACTOR=2");  // used again: now the second is the longest unused
  run(folder_, cap, "-DFACTOR=4");
  EXPECT_TRUE(fs::exists(first.path));
  EXPECT_FALSE(fs::exists(second));
  EXPECT_EQ(entries().size(), 2u);

  const Outcome tiny = run(dir_.file("tiny"), 10);
  EXPECT_THAT(tiny.log, HasSubstr("the whole cache at most 10"));
  EXPECT_THAT(files_in(dir_.file("tiny")), ElementsAre());
}

TEST(CacheFolderTest, PrunesWhatADeadWriterLeft) {
  const TempDir dir;
  const CacheFolder folder(dir.path());
  folder.write({1, 2}, "p", "d", {"notes", {1, 2, 3}});
  EXPECT_EQ(folder.read({1, 2}), (CacheFolder::Content{"notes", {1, 2, 3}}));
  const std::string entry = folder.entries().at(0).path;
  write_text(entry + ".1-0.tmp", "old");
  write_text(entry + ".2-0.tmp", "young");
  write_text(dir.file("foreign.tmp"), "not ours");
  const auto two_hours_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  fs::last_write_time(entry + ".1-0.tmp", two_hours_ago);
  fs::last_write_time(dir.file("foreign.tmp"), two_hours_ago);
  EXPECT_EQ(folder.prune(1 << 20), 0u);
  EXPECT_FALSE(fs::exists(entry + ".1-0.tmp"));
  EXPECT_TRUE(fs::exists(entry + ".2-0.tmp"));
  EXPECT_TRUE(fs::exists(dir.file("foreign.tmp")));
  EXPECT_EQ(folder.clear(), 1u);
}

/// Processes that write, read and prune one folder at once see whole entries or none.
TEST(CacheFolderTest, IsSharedByProcesses) {
  const TempDir dir;
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      const CacheFolder folder(dir.path());
      int failures = 0;
      for (unsigned i = 0; i < 200; ++i) {
        try {
          const auto mark = static_cast<unsigned char>(i % 3);
          folder.write({0, mark}, "p", "d", {"", std::vector<unsigned char>(1000 + i, mark)});
          const auto found = folder.read({0, mark});
          if (found && (found->binary.size() < 1000 || found->binary.back() != mark)) ++failures;
          folder.prune(2500);
        } catch (const std::exception&) {
          ++failures;
        }
      }
      _exit(failures == 0 ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(files_in(dir.path()), Each(EndsWith(".clprogram")));
}

}  // namespace
}  // namespace moecl::test
