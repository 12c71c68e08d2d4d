// Groups of processes: who may join, what happens when one is not what it should be. Threads join as processes do;
// whole processes are killed by tests/campaign/ranks.py.
#include <gmock/gmock.h>

#include <cstring>
#include <future>
#include <sys/stat.h>
#include <unistd.h>

#include "dispatch/processes/group_memory.hpp"
#include "dispatch/transports/shared_memory.hpp"
#include "tests/dispatch/ranks.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

/// Nobody else's.
std::string fresh_name() {
  static int count = 0;
  return "processes_test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

/// What it says; empty where it is done.
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

GroupOptions within(int ms) {
  GroupOptions options;
  options.deadline = milliseconds(ms);
  return options;
}

RankGroup join(const std::string& name, std::int32_t rank, std::int32_t size, const Stream& stream, int ms = 20000) {
  return RankGroup::join(name, rank, size, stream, within(ms));
}

/// What each of the ranks says that join with these options.
std::vector<std::string> joined_with(const std::string& name, const std::vector<GroupOptions>& options) {
  std::vector<std::future<std::string>> ranks;
  for (std::size_t rank = 0; rank < options.size(); ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      return refusal([&] {
        const Stream stream(*devices()[0]->context);
        RankGroup::join(name, static_cast<std::int32_t>(rank), static_cast<std::int32_t>(options.size()), stream,
                        options[rank]);
      });
    }));
  std::vector<std::string> texts;
  for (auto& rank : ranks) texts.push_back(rank.get());
  return texts;
}

TEST(Join, TellsWhoDidNotCome) {
  const Stream stream(*devices()[0]->context);
  const std::string name = fresh_name();
  EXPECT_THAT(refusal([&] { join(name, 1, 4, stream, 50); }), HasSubstr("waited 50 ms for rank 0, 2, 3"));
}

TEST(Join, ARankIsThereOnce) {
  const Stream stream(*devices()[0]->context);
  const std::string name = fresh_name();
  const GroupMemory first(name, 1, 2);
  EXPECT_THAT(refusal([&] { join(name, 1, 2, stream, 50); }),
              AllOf(HasSubstr("rank 1"), HasSubstr("is there already, process " + std::to_string(getpid()))));
  EXPECT_THAT(refusal([&] { join(name, 0, 3, stream, 50); }), HasSubstr("is a group of 2 ranks, rank 0 expects 3"));
}

TEST(Join, RefusesWhatCannotBe) {
  const Stream stream(*devices()[0]->context);
  const std::string name = fresh_name();
  EXPECT_THAT(refusal([&] { join("", 0, 2, stream); }), HasSubstr("1 to 200 characters"));
  EXPECT_THAT(refusal([&] { join("a b", 0, 2, stream); }), HasSubstr("no spaces"));
  EXPECT_THAT(refusal([&] { join(name, 2, 2, stream); }), HasSubstr("rank 2 is not in [0, 2)"));
  EXPECT_THAT(refusal([&] { join(name, 0, 65, stream); }), HasSubstr("65 ranks on a node are not in [1, 64]"));
  GroupOptions staged;
  staged.transport = TransportKind::staged;
  EXPECT_THAT(refusal([&] { RankGroup::join(name, 0, 2, stream, staged); }), HasSubstr("have shared_memory"));
  EXPECT_THAT(refusal([&] { RankGroup::from_mpi(nullptr, stream); }), HasSubstr("mpi"));
}

TEST(Join, ANameOfPathsStaysInItsFolder) {
  const Stream stream(*devices()[0]->context);
  const RankGroup alone = join("../../tmp/" + fresh_name() + "%", 0, 1, stream);
  EXPECT_EQ(alone.size(), 1);
}

TEST(Join, RanksAgreeAboutOptions) {
  for (const std::string& text : joined_with(fresh_name(), {within(20000), within(30000)}))
    EXPECT_THAT(text, HasSubstr("deadline in ms: rank 1 has 30000, rank 0 has 20000"));
}

TEST(Join, ForeignFilesAreRefused) {
  const std::string name = fresh_name(), path = "/dev/shm/moecl-" + std::to_string(geteuid()) + "/group-" + name;
  const GroupMemory makes_the_folder(fresh_name(), 0, 1);
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(refusal([&] { GroupMemory(name, 0, 1); }), HasSubstr("is not a file of this user alone"));
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(symlink("/dev/null", path.c_str()), 0);
  EXPECT_THAT(refusal([&] { GroupMemory(name, 0, 1); }), HasSubstr(path));
  unlink(path.c_str());
}

TEST(Join, WhatKilledGroupsHaveLeftIsRemoved) {
  const std::string folder = "/dev/shm/moecl-" + std::to_string(geteuid()) + "/",
                    left = folder + "group-" + fresh_name();
  const GroupMemory living(fresh_name(), 0, 1);
  std::FILE* const file = std::fopen(left.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  ASSERT_EQ(chmod(left.c_str(), 0600), 0);
  const GroupMemory next(fresh_name(), 0, 1);
  struct stat found {};
  EXPECT_NE(stat(left.c_str(), &found), 0);
  EXPECT_EQ(stat((folder + "group-" + living.name()).c_str(), &found), 0);
}

TEST(Join, TheLastOneRemovesTheMemory) {
  const std::string name = fresh_name(), path = "/dev/shm/moecl-" + std::to_string(geteuid()) + "/group-" + name;
  struct stat found {};
  {
    const GroupMemory one(name, 0, 2);
    { const GroupMemory other(name, 1, 2); }
    EXPECT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
  }
  EXPECT_NE(stat(path.c_str(), &found), 0);
}

/// A rank that writes into its ring what it likes; the other one is as it should be.
class Liar : public testing::Test {
 protected:
  void SetUp() override {
    options_ = within(20000);
    honest_ = std::async(std::launch::async, [this] {
      return refusal([this] {
        const Stream stream(*devices()[0]->context);
        RankGroup::join(name_, 1, 2, stream, options_);
      });
    });
    memory_.assemble(true, milliseconds(20000));
  }
  void write(const std::vector<std::uint64_t>& words) {
    const std::span<std::byte> bytes = memory_.bytes(Link::notes, 0, 1);
    std::memcpy(bytes.data(), words.data(), words.size() * sizeof(words[0]));
    memory_.ring(Link::notes, 0, 1).written = words.size() * sizeof(words[0]);
    memory_.ring_bell(1, Link::notes);
  }
  std::string name_ = fresh_name();
  GroupOptions options_;
  GroupMemory memory_{name_, 0, 2};
  std::future<std::string> honest_;
};

TEST_F(Liar, MoreBytesThanTheRingHas) {
  memory_.ring(Link::notes, 0, 1).written = std::uint64_t{1} << 40;
  memory_.ring_bell(1, Link::notes);
  EXPECT_THAT(honest_.get(), HasSubstr("rank 0 says that 1099511627776 bytes are in a ring of 16384"));
}

TEST_F(Liar, ANoteThatIsTooLong) {
  write({std::uint64_t{1} << 60});
  EXPECT_THAT(honest_.get(), HasSubstr("rank 0 announces a note of 1152921504606846976 bytes"));
}

TEST_F(Liar, ANoteWhoseListsLeaveIt) {
  write({24, 0, 0, std::uint64_t{1} << 40});
  EXPECT_THAT(honest_.get(), HasSubstr("rank 0 brings a note of 24 bytes"));
}

TEST(Regroup, WhoLeavesIsMissedAndTheOthersGoOn) {
  const std::string name = fresh_name();
  std::vector<std::future<void>> ranks;
  std::promise<void> alone;
  const std::shared_future<void> left = alone.get_future().share();
  for (std::int32_t rank = 0; rank < 3; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const Stream stream(*devices()[0]->context);
      std::optional<RankGroup> group(join(name, rank, 3, stream));
      if (rank == 1) {
        group.reset();
        left.wait();
        RankGroup again = join(name, 1, 3, stream);
        Communicator all = again.communicator(1);
        EXPECT_EQ(all.share("numbers", {11}), (std::vector<std::vector<std::int64_t>>{{10}, {11}, {12}}));
        all.barrier();
        return;
      }
      Communicator ranks_before = group->communicator(rank);
      EXPECT_THAT(refusal([&] { ranks_before.barrier(); }), HasSubstr("rank 1"));
      EXPECT_THAT(group->failure(), HasSubstr("has left the group"));
      RankGroup smaller = group->shrink();
      EXPECT_EQ(smaller.size(), 2);
      EXPECT_EQ(smaller.joined_ranks(), (std::vector<std::int32_t>{0, 2}));
      EXPECT_EQ(smaller.local_ranks(), std::vector<std::int32_t>{rank / 2});
      Communicator two = smaller.communicator(rank / 2);
      EXPECT_EQ(two.share("numbers", {rank}), (std::vector<std::vector<std::int64_t>>{{0}, {2}}));
      if (rank == 0) alone.set_value();
      RankGroup whole = smaller.rejoin();
      Communicator all = whole.communicator(rank);
      EXPECT_EQ(all.share("numbers", {10 + rank}), (std::vector<std::vector<std::int64_t>>{{10}, {11}, {12}}));
      all.barrier();
    }));
  for (auto& rank : ranks) rank.get();
}

TEST(Regroup, ThreadsCannot) {
  const Stream stream(*devices()[0]->context);
  RankGroup group({stream});
  EXPECT_THAT(refusal([&] { group.shrink(); }), HasSubstr("ranks are threads"));
}

/// Longer than a ring by a part of it, and in two pieces.
TEST(Rows, LongerThanARingArriveWhole) {
  GroupOptions options = within(60000);
  options.transport = TransportKind::shared_memory;
  Ranks on(2, Ranks::first_device, options);
  on.group.run([](Communicator& comm) {
    const StreamView stream = comm.stream();
    constexpr std::uint64_t words = (std::uint64_t{11} << 20) / 4 + 3;
    std::vector<std::uint32_t> mine(words), got(2 * words);
    for (std::uint64_t i = 0; i < words; ++i)
      mine[i] = static_cast<std::uint32_t>(i * 2654435761U) + static_cast<std::uint32_t>(comm.rank());
    const Buffer send(*stream.context, words * 4), recv(*stream.context, 2 * words * 4);
    write_blocking(stream, send.view(), mine.data(), words * 4);
    comm.all_gather(send.view(), recv.view());
    comm.wait(stream.record());
    read_blocking(stream, recv.view(), got.data(), got.size() * 4);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < 2 * words; ++i)
      wrong += got[i] != static_cast<std::uint32_t>(i % words * 2654435761U) + static_cast<std::uint32_t>(i / words);
    EXPECT_EQ(wrong, 0U);
  });
}

}  // namespace
}  // namespace moecl::test
