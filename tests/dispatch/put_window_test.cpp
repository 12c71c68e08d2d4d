#include "dispatch/put_window.hpp"

#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using Ints = std::vector<std::int32_t>;

/// Kernels of ranks that share a device may wait for each other as long as fewer do than it has workers.
class WaitingPeerMemory final : public PeerMemory {
 public:
  std::string reject(StreamView owner, StreamView user) override { return fake_.reject(owner, user); }
  std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users, std::uint64_t bytes) override {
    return fake_.allocate(owner, users, bytes);
  }
  std::uint64_t most_bytes() const noexcept override { return 1 << 20; }
  bool kernels_may_wait() const noexcept override { return true; }

 private:
  FakePeerMemory fake_;
};

GroupOptions options(std::shared_ptr<PeerMemory> memory, milliseconds deadline = milliseconds(60000)) {
  return {deadline, TransportKind::peer_window, std::move(memory)};
}

constexpr std::int64_t width = 16;  // ints of a row

std::int32_t value(std::int32_t from, std::int32_t step, std::int64_t i) {
  return from * 10000 + step * 100 + static_cast<std::int32_t>(i);
}

/// Every rank sends its one token to all of them, one expert each; the host waits between the steps only to `pause`.
void put_steps(Communicator& comm, std::int32_t steps, bool pause = false) {
  const StreamView stream = comm.stream();
  const std::int32_t ranks = comm.size();
  const std::uint64_t ends_at = PutWindow::begin(ranks), codes_at = ends_at + 256;
  PutWindow window(comm, codes_at + static_cast<std::uint64_t>(ranks * width) * 4);
  std::vector<double> one_each, in_order;
  for (std::int32_t rank = 0; rank < ranks; ++rank) one_each.push_back(rank + 1), in_order.push_back(rank);
  const DeviceTensor row_ends(stream, DType::i32, {ranks}, one_each), slots(stream, DType::i32, {ranks}, in_order),
      seen(stream, DType::i32, {steps * ranks, width});
  std::vector<DeviceTensor> tokens;
  for (std::int32_t step = 0; step < steps; ++step) {
    std::vector<double> row;
    for (std::int64_t i = 0; i < width; ++i) row.push_back(value(comm.rank(), step, i));
    tokens.emplace_back(stream, DType::i32, std::initializer_list<std::int64_t>{1, width}, row);
  }
  for (std::int32_t step = 0; step < steps; ++step) {
    window.next();
    window_put::Windows to = window.windows();
    to.capacity = 1;
    to.codes_at = codes_at;
    window_put::enqueue(
        stream, window_put::Dispatch{row_ends, slots, ranks, tokens[static_cast<std::size_t>(step)], {}, ends_at, to});
    window.arrive(100, {});
    const TensorView came = seen.view.rows(step * ranks, ranks);
    enqueue_copy(stream, window.memory().slice(codes_at, came.size_bytes()), came.buffer.slice(0, came.size_bytes()));
    if (!pause) continue;
    stream.finish();
    comm.barrier();
  }
  std::vector<double> expected;
  for (std::int32_t step = 0; step < steps; ++step)
    for (std::int32_t from = 0; from < ranks; ++from)
      for (std::int64_t i = 0; i < width; ++i) expected.push_back(value(from, step, i));
  EXPECT_EQ(seen.values(stream), expected);
  EXPECT_EQ(comm.bytes_received(), static_cast<std::uint64_t>(100 * steps * (ranks - 1)));
  comm.barrier();
}

TEST(PutWindow, StepsFollowEachOtherWithoutTheHost) {
  for (const std::int32_t count : {2, 3, 8}) {
    SCOPED_TRACE(count);
    Ranks on(count, Ranks::first_device, options(std::make_shared<FakePeerMemory>()));
    on.group.run([](Communicator& comm) { put_steps(comm, 20); });
  }
}

// On PoCL launches of a kernel on two queues take turns, so a step must not begin while one waits for another.
TEST(PutWindow, KernelsWaitForThoseOfTheOtherRank) {
  Ranks on(2, Ranks::first_device, options(std::make_shared<WaitingPeerMemory>()));
  on.group.run([](Communicator& comm) { put_steps(comm, 20, true); });
}

/// The real thing, where there are two devices that reach each other's memory.
TEST(PutWindow, DevicesStoreIntoEachOthersMemory) {
  Ranks on(2, Ranks::all_platforms);
  if (on.group.transport(0, 1).kind != TransportKind::peer_window) GTEST_SKIP() << on.group.transport(0, 1).reason;
  on.group.run([](Communicator& comm) { put_steps(comm, 200); });
}

TEST(PutWindow, ARankThatDoesNotSignalIsNamed) {
  Ranks on(2, Ranks::first_device, options(std::make_shared<WaitingPeerMemory>(), milliseconds(500)));
  EXPECT_THROW(on.group.run([](Communicator& comm) {
    const StreamView stream = comm.stream();
    PutWindow window(comm, 4096);
    comm.barrier();
    if (comm.rank() == 1) return;
    const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
    for (int step = 1; step <= 16; ++step) {  // the host looks every 16 steps
      window.next();
      window.arrive(0, fault);
    }
    EXPECT_THAT(error_of([&] { check_fault(stream, fault); }).what(), testing::HasSubstr("did not signal step 1"));
    window.next();
  }),
               Error);
  EXPECT_THAT(on.group.failure(), testing::HasSubstr("did not signal step 1"));
}

TEST(PutWindow, IsRefusedWhereAPairHasNoPeersMemory) {
  Ranks on(2, Ranks::first_device), alone(1, Ranks::first_device);
  EXPECT_EQ(PutWindow::reject(on.group.communicator(0)), "no peer window from rank 0 to rank 1");
  EXPECT_EQ(PutWindow::reject(alone.group.communicator(0)), "one rank");
  Ranks possible(2, Ranks::first_device, options(std::make_shared<WaitingPeerMemory>()));
  EXPECT_EQ(PutWindow::reject(possible.group.communicator(1)), "");
  EXPECT_EQ(PutWindow::most_bytes(possible.group.communicator(0)), 1U << 20);
  EXPECT_THROW(
      possible.group.run([](Communicator& comm) { PutWindow(comm, 4096 + static_cast<std::uint64_t>(comm.rank())); }),
      Error);
  EXPECT_THAT(possible.group.failure(), testing::HasSubstr("put window: 4097 bytes here, 4096 on the first rank"));
}

}  // namespace
}  // namespace moecl::test
