#include "dispatch/put_window.hpp"

#include <moecl/fault.hpp>
#include <moecl/opencl.hpp>

#include <gmock/gmock.h>

#include <numeric>

#include "tests/dispatch/waiting_ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using Ints = std::vector<std::int32_t>;

GroupOptions options(std::shared_ptr<PeerMemory> memory, milliseconds deadline = milliseconds(60000)) {
  return {deadline, TransportKind::peer_window, std::move(memory)};
}

constexpr std::int64_t width = 16;  // ints of a row

std::int32_t value(std::int32_t from, std::int32_t step, std::int64_t i) {
  return from * 10000 + step * 100 + static_cast<std::int32_t>(i);
}

/// A rank's only token, which goes to all ranks: each rank has one expert.
struct OneToken {
  std::uint64_t ids_at, codes_at;
  DeviceTensor ids, return_rows;
  PutWindow window;

  explicit OneToken(Communicator& comm)
      : ids_at(PutWindow::begin(comm.size())),
        codes_at(ids_at + 256),
        ids(comm.stream(), DType::i32, {1, comm.size()}, counted(comm.size())),
        return_rows(comm.stream(), DType::i32, {comm.size()}),
        window(comm, codes_at + static_cast<std::uint64_t>(comm.size() * width) * 4) {}
  static std::vector<double> counted(std::int32_t count) {
    std::vector<double> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  void put(StreamView stream, TensorView token, TensorView fault = {}) {
    window.next();
    window_put::Dispatch put;
    put.ids = ids;
    put.codes = token;
    put.experts = static_cast<std::int32_t>(ids.view.shape[1]);
    put.return_rows = return_rows;
    put.ids_at = ids_at;
    put.to = window.windows();
    put.to.capacity = 1;
    put.to.codes_at = codes_at;
    put.to.fault = fault;
    window_put::enqueue(stream, put);
    window.arrive([](std::int32_t /*peer*/) { return 100; });
  }
};

/// Puts `steps` tokens; the host waits for nothing between them.
void put_steps(Communicator& comm, std::int32_t steps) {
  const StreamView stream = comm.stream();
  const std::int32_t ranks = comm.size();
  OneToken of(comm);
  const DeviceTensor seen(stream, DType::i32, {steps * ranks, width});
  std::vector<DeviceTensor> tokens;
  for (std::int32_t step = 0; step < steps; ++step) {
    std::vector<double> row;
    for (std::int64_t i = 0; i < width; ++i) row.push_back(value(comm.rank(), step, i));
    tokens.emplace_back(stream, DType::i32, std::initializer_list<std::int64_t>{1, width}, row);
  }
  for (std::int32_t step = 0; step < steps; ++step) {
    of.put(stream, tokens[static_cast<std::size_t>(step)]);
    const TensorView came = seen.view.rows(step * ranks, ranks);
    enqueue_copy(stream, of.window.memory().slice(of.codes_at, came.size_bytes()),
                 came.buffer.slice(0, came.size_bytes()));
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

TEST(PutWindow, KernelsWaitForThoseOfTheOtherRank) {
  if (!kernels_run_at_once()) GTEST_SKIP() << "one GPU need not run two kernels at once";
  TwoContexts on;
  on.group->run([](Communicator& comm) { put_steps(comm, 20); });
}

// A lane takes another queue when tracing begins.
TEST(PutWindow, OutlivesTheQueueThatItWasMadeOn) {
  if (!kernels_run_at_once()) GTEST_SKIP() << "one GPU need not run two kernels at once";
  TwoContexts on;
  std::vector<std::unique_ptr<Communicator>> lanes(2);
  std::vector<std::unique_ptr<OneToken>> tokens(2);
  const auto put = [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    if (lanes[rank] == nullptr) {
      lanes[rank] = std::make_unique<Communicator>(comm.beside());
      tokens[rank] = std::make_unique<OneToken>(*lanes[rank]);
    }
    const StreamView stream = lanes[rank]->stream();
    const DeviceTensor token(stream, DType::i32, {1, width}, std::vector<double>(width, 7));
    tokens[rank]->put(stream, token);
    stream.finish();
    comm.barrier();
    comm.stream().finish();
  };
  on.group->run(put);
  std::vector<Stream> traced;
  for (const std::unique_ptr<Context>& context : on.contexts) traced.emplace_back(*context);
  on.group->set_streams({traced.begin(), traced.end()});
  on.group->run(put);
  tokens.clear();
  lanes.clear();
  EXPECT_EQ(on.group->failure(), "");
}

/// Peer memory of real devices: two that reach each other's memory.
TEST(PutWindow, DevicesStoreIntoEachOthersMemory) {
  Ranks on(2, Ranks::all_platforms);
  if (on.group.transport(0, 1).kind != TransportKind::peer_window) GTEST_SKIP() << on.group.transport(0, 1).reason;
  on.group.run([](Communicator& comm) { put_steps(comm, 200); });
}

TEST(PutWindow, ARankThatDoesNotSignalIsNamed) {
  if (!kernels_run_at_once()) GTEST_SKIP() << "one GPU need not run two kernels at once";
  TwoContexts on(milliseconds(2000));
  EXPECT_THROW(on.group->run([](Communicator& comm) {
    const StreamView stream = comm.stream();
    OneToken of(comm);
    comm.barrier();
    if (comm.rank() == 1) return;
    const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0}), token(stream, DType::i32, {1, width});
    for (int step = 1; step <= 16; ++step) of.put(stream, token, fault);  // the host looks every 16 steps
    EXPECT_THAT(error_of([&] { check_fault(stream, fault); }).what(), testing::HasSubstr("did not signal step 1"));
    of.window.next();
  }),
               Error);
  EXPECT_THAT(on.group->failure(), testing::HasSubstr("did not signal step 1"));
}

TEST(PutWindow, IsRefusedWhereAPairHasNoPeersMemory) {
  Ranks on(2, Ranks::first_device), alone(1, Ranks::first_device);
  EXPECT_EQ(PutWindow::reject(on.group.communicator(0)), "no peer window from rank 0 to rank 1");
  EXPECT_EQ(PutWindow::reject(alone.group.communicator(0)), "one rank");
  Ranks possible(2, Ranks::first_device, options(std::make_shared<FakePeerMemory>(1 << 20)));
  EXPECT_EQ(PutWindow::reject(possible.group.communicator(1)), "");
  EXPECT_EQ(PutWindow::max_bytes(possible.group.communicator(0)), 1U << 20);
  EXPECT_THROW(
      possible.group.run([](Communicator& comm) { PutWindow(comm, 4096 + static_cast<std::uint64_t>(comm.rank())); }),
      Error);
  EXPECT_THAT(possible.group.failure(), testing::HasSubstr("put window: bytes: rank 1 has 4097, rank 0 has 4096"));
}

}  // namespace
}  // namespace moecl::test
