// Groups of processes: which may join, and what happens when one misbehaves. Here threads join as processes do;
// tests/campaign/ranks.py kills whole processes.
#include <moecl/window.hpp>

#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <latch>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dispatch/processes/group_memory.hpp"
#include "dispatch/transports/shared_memory.hpp"
#include "runtime/host_address.hpp"
#include "tests/dispatch/ranks.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A name that no other group has.
std::string fresh_name() {
  static int count = 0;
  return "processes_test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

/// The message of the Error that `body` throws; empty if it throws none.
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

/// The error message of each rank: rank r joins with options[r].
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
  const GroupMemory first(name, {1}, 2);
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

TEST(Join, WhoDoesNotRunIsToldFromWhoIsStarved) {
  const auto silent = [](const std::vector<int>& ms, int longest) {
    std::vector<std::chrono::microseconds> times;
    for (const int time : ms) times.emplace_back(milliseconds(time));
    return far_more_silent(times, milliseconds(longest));
  };
  EXPECT_THAT(silent({0, 900, 10, 400}, 1500), ElementsAre(1));
  EXPECT_THAT(silent({900, 0, 500, 10}, 1500), ElementsAre(0, 2));
  EXPECT_THAT(silent({0, 499, 10}, 1500), IsEmpty());
  EXPECT_THAT(silent({0, 249, 10}, 30), IsEmpty());
  EXPECT_THAT(silent({0, 250, 10}, 30), ElementsAre(1));
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
  const GroupMemory makes_the_folder(fresh_name(), {0}, 1);
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(refusal([&] { GroupMemory(name, {0}, 1); }), HasSubstr("is not a file of this user alone"));
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(symlink("/dev/null", path.c_str()), 0);
  EXPECT_THAT(refusal([&] { GroupMemory(name, {0}, 1); }), HasSubstr(path));
  unlink(path.c_str());
}

TEST(Join, WhatKilledGroupsHaveLeftIsRemoved) {
  const std::string folder = "/dev/shm/moecl-" + std::to_string(geteuid()) + "/",
                    left = folder + "group-" + fresh_name();
  const GroupMemory living(fresh_name(), {0}, 1);
  std::FILE* const file = std::fopen(left.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  ASSERT_EQ(chmod(left.c_str(), 0600), 0);
  const GroupMemory next(fresh_name(), {0}, 1);
  struct stat found {};
  EXPECT_NE(stat(left.c_str(), &found), 0);
  EXPECT_EQ(stat((folder + "group-" + living.name()).c_str(), &found), 0);
}

TEST(Join, TheLastOneRemovesTheMemory) {
  const std::string name = fresh_name(), path = "/dev/shm/moecl-" + std::to_string(geteuid()) + "/group-" + name;
  struct stat found {};
  {
    const GroupMemory one(name, {0}, 2);
    { const GroupMemory other(name, {1}, 2); }
    EXPECT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
  }
  EXPECT_NE(stat(path.c_str(), &found), 0);
}

/// Rank 0 writes arbitrary bytes into its ring; rank 1 joins as it should.
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
  GroupMemory memory_{name_, {0}, 2};
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

/// Two processes of two ranks: the transport of each pair of ranks, and the reason for it.
TEST(Join, AProcessMayHaveSeveralRanks) {
  const std::string name = fresh_name();
  std::vector<std::future<void>> processes;
  for (const std::int32_t first : {0, 2})
    processes.push_back(std::async(std::launch::async, [&, first] {
      const Stream even(*devices()[0]->context), odd(*devices()[0]->context);
      RankGroup group = RankGroup::join(name, {{first + 1, odd}, {first, even}}, 4, within(20000));
      EXPECT_EQ(group.local_ranks(), (std::vector<std::int32_t>{first, first + 1}));
      for (std::int32_t from = 0; from < 4; ++from)
        for (std::int32_t to = 0; to < 4; ++to) {
          if (from == to) continue;
          const TransportChoice& choice = group.transport(from, to);
          const bool here = from / 2 == first / 2 && to / 2 == first / 2, threads = from / 2 == to / 2;
          EXPECT_EQ(choice.kind, threads ? TransportKind::shared_context : TransportKind::shared_memory);
          const bool mine = from / 2 == first / 2 || to / 2 == first / 2;
          const char* const why = threads ? (here ? "GB/s in the probe" : "threads of another process")
                                          : (mine ? "another process, " : "not probed");
          EXPECT_THAT(choice.reason, HasSubstr(why));
        }
      EXPECT_THAT(refusal([&] { group.communicator(3 - first); }), HasSubstr("is another process, this one is"));
    }));
  for (auto& process : processes) process.get();
}

TEST(Join, RefusesRanksTwiceAndNone) {
  const Stream stream(*devices()[0]->context);
  EXPECT_THAT(refusal([&] {
                RankGroup::join(fresh_name(), {{1, stream}, {1, stream}}, 2);
              }),
              HasSubstr("rank 1 is named twice"));
  EXPECT_THAT(refusal([&] { RankGroup::join(fresh_name(), std::vector<RankGroup::Joining>(), 2); }),
              HasSubstr("has no rank"));
}

/// Threads of a process may have contexts of their own. This group has pairs of ranks with each transport.
TEST(Join, ThreadsOfTwoContextsAndAnotherProcess) {
  const std::string name = fresh_name();
  const auto other = Context::create({*devices()[0]->stream.view().device});
  std::vector<std::future<void>> processes;
  for (const std::int32_t process : {0, 1})
    processes.push_back(std::async(std::launch::async, [&, process] {
      const Stream first(*devices()[0]->context), second(*devices()[0]->context), third(*other);
      std::vector<RankGroup::Joining> ranks = {{3, first}};
      if (process == 0) ranks = {{0, first}, {1, second}, {2, third}};
      RankGroup group = RankGroup::join(name, ranks, 4, within(20000));
      if (process == 0) {
        EXPECT_EQ(group.transport(0, 1).kind, TransportKind::shared_context);
        EXPECT_EQ(group.transport(0, 2).kind, TransportKind::staged);
        EXPECT_EQ(group.transport(0, 3).kind, TransportKind::shared_memory);
      }
      group.run([](Communicator& comm) {
        const StreamView stream = comm.stream();
        const std::int32_t mine = comm.rank();
        const Buffer send(*stream.context, 4), all(*stream.context, 16);
        Window window(comm, 16);
        for (std::int32_t step = 0; step < 3; ++step) {
          const std::vector<std::int32_t> expected = {step, step + 10, step + 20, step + 30};
          std::vector<std::int32_t> got(4);
          const std::int32_t brought = step + 10 * mine;
          write_blocking(stream, send.view(), &brought, 4);
          comm.all_gather(send.view(), all.view());
          comm.wait(stream.record());
          read_blocking(stream, all.view(), got.data(), 16);
          EXPECT_EQ(got, expected);
          for (std::int32_t peer = 0; peer < 4; ++peer)
            window.put(peer, static_cast<std::uint64_t>(4 * mine), send.view());
          window.fence();
          comm.wait(stream.record());
          read_blocking(stream, window.memory(), got.data(), 16);
          EXPECT_EQ(got, expected);
          comm.barrier();  // no rank still reads when the next puts come
        }
      });
    }));
  for (auto& process : processes) process.get();
}

/// Also in a process where no rank waits for that thread.
TEST(Join, AThreadThatDoesNotComeIsNamedInAllProcesses) {
  const std::string name = fresh_name();
  std::vector<std::future<void>> processes;
  for (const std::int32_t first : {0, 2})
    processes.push_back(std::async(std::launch::async, [&, first] {
      const Stream even(*devices()[0]->context), odd(*devices()[0]->context);
      RankGroup group = RankGroup::join(name, {{first, even}, {first + 1, odd}}, 4, within(2000));
      if (first == 0) {
        Communicator pair = group.communicator(0).part({0, 1});
        EXPECT_THAT(refusal([&] { pair.barrier(); }), HasSubstr("barrier: rank 0 waited 2000 ms for rank 1"));
      }
      for (int looks = 0; looks < 1000 && group.failure().empty(); ++looks)
        std::this_thread::sleep_for(milliseconds(10));
      EXPECT_EQ(group.failure(), "barrier: rank 0 waited 2000 ms for rank 1");
    }));
  for (auto& process : processes) process.get();
}

TEST(Regroup, AProcessGoesWithAllItsRanks) {
  const std::string name = fresh_name();
  std::vector<std::future<void>> processes;
  std::promise<void> alone;
  const std::shared_future<void> left = alone.get_future().share();
  std::latch met(3);  // a process that leaves may break the others' unfinished exchange
  for (std::int32_t process = 0; process < 3; ++process)
    processes.push_back(std::async(std::launch::async, [&, process] {
      const Stream even(*devices()[0]->context), odd(*devices()[0]->context);
      const std::int32_t first = 2 * process;
      const auto join_again = [&] {
        return RankGroup::join(name, {{first, even}, {first + 1, odd}}, 6, within(20000));
      };
      const auto all_meet = [&](RankGroup& group) {
        group.run([](Communicator& ranks) {
          EXPECT_EQ(ranks.share("numbers", {ranks.rank()}).size(), static_cast<std::size_t>(ranks.size()));
          ranks.barrier();
        });
      };
      std::optional<RankGroup> group(join_again());
      all_meet(*group);
      met.arrive_and_wait();
      if (process == 1) {
        group.reset();
        left.wait();
        RankGroup again = join_again();
        return all_meet(again);
      }
      EXPECT_THAT(refusal([&] { all_meet(*group); }), HasSubstr("has left the group"));
      RankGroup smaller = group->shrink();
      EXPECT_EQ(smaller.joined_ranks(), (std::vector<std::int32_t>{0, 1, 4, 5}));
      EXPECT_EQ(smaller.local_ranks(), (std::vector<std::int32_t>{process, process + 1}));
      EXPECT_EQ(smaller.transport(process, process + 1).kind, TransportKind::shared_context);
      all_meet(smaller);
      if (process == 0) alone.set_value();
      RankGroup whole = smaller.rejoin();
      all_meet(whole);
    }));
  for (auto& each : processes) each.get();
}

TEST(Regroup, ThreadsCannot) {
  const Stream stream(*devices()[0]->context);
  RankGroup group({stream});
  EXPECT_THAT(refusal([&] { group.shrink(); }), HasSubstr("ranks are threads"));
}

/// Gathers rows that are longer than a ring by a fraction of a ring.
void gather_long_rows(Communicator& comm) {
  const StreamView stream = comm.stream();
  constexpr std::uint64_t words = (std::uint64_t{11} << 20) / 4 + 3;
  const auto size = static_cast<std::uint64_t>(comm.size());
  std::vector<std::uint32_t> mine(words), got(size * words);
  for (std::uint64_t i = 0; i < words; ++i)
    mine[i] = static_cast<std::uint32_t>(i * 2654435761U) + static_cast<std::uint32_t>(comm.rank());
  const Buffer send(*stream.context, words * 4), recv(*stream.context, size * words * 4);
  write_blocking(stream, send.view(), mine.data(), words * 4);
  comm.all_gather(send.view(), recv.view());
  comm.wait(stream.record());
  read_blocking(stream, recv.view(), got.data(), got.size() * 4);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < size * words; ++i)
    wrong += got[i] != static_cast<std::uint32_t>(i % words * 2654435761U) + static_cast<std::uint32_t>(i / words);
  EXPECT_EQ(wrong, 0U);
}

/// What process_vm_readv does when a process reads another's memory: which calls fail, and how many were made.
struct Reads {
  std::function<bool(int call)> fails;
  std::atomic<int> calls{0};
};
Reads* reads = nullptr;

class Rows : public testing::TestWithParam<std::pair<const char*, std::function<bool(int)>>> {};

TEST_P(Rows, LongerThanARingArriveWhole) {
  Reads counted{GetParam().second};
  reads = &counted;
  const std::string name = fresh_name();
  std::vector<std::future<void>> ranks;
  for (std::int32_t rank = 0; rank < 3; ++rank)
    ranks.push_back(std::async(std::launch::async, [&name, rank] {
      const Stream stream(*devices()[0]->context);
      RankGroup group = join(name, rank, 3, stream, 60000);
      for (int times = 0; times < 2; ++times) group.run(gather_long_rows);
    }));
  for (std::future<void>& rank : ranks) rank.get();
  reads = nullptr;
  if (host_shares_memory(*devices()[0]->context)) {
    EXPECT_GE(counted.calls, 6);  // each rank reads from each other rank until a read fails
  }
}

INSTANTIATE_TEST_SUITE_P(Read, Rows,
                         testing::Values(std::pair("Allowed", [](int) { return false; }),
                                         std::pair("Forbidden", [](int) { return true; }),
                                         std::pair("ToSome", [](int call) { return call % 5 == 4; }),
                                         std::pair("ForAWhile", [](int call) { return call >= 8; })),
                         [](const auto& of) { return std::string(of.param.first); });

}  // namespace
}  // namespace moecl::test

/// Takes the place of the C library's function: reads nothing, or a part of what is asked for.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long, const iovec* there, unsigned long,
                                    unsigned long) noexcept {
  using moecl::test::reads;
  if (reads != nullptr && reads->fails(reads->calls++)) return errno = EPERM, -1;
  iovec part = *there;
  part.iov_len = std::min<std::size_t>(part.iov_len, 4 << 20);
  return syscall(SYS_process_vm_readv, process, here, 1, &part, 1, 0);
}
