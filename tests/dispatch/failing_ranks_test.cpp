// A rank that fails: its peers get an error at once, and use no memory that the rank has released.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/strategy.hpp>
#include <moecl/trace.hpp>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <future>
#include <new>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"
#include "tests/runtime/driver_calls.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

class FailingRanksTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count, milliseconds deadline = milliseconds(60000)) {
    return {count, GetParam().places, {deadline, GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, FailingRanksTest, testing::ValuesIn(settings_with_fake),
                         [](const auto& param) { return std::string(param.param.name); });

cl_uint references(cl_mem memory) {
  cl_uint count = 0;
  EXPECT_EQ(clGetMemObjectInfo(memory, CL_MEM_REFERENCE_COUNT, sizeof(count), &count, nullptr), CL_SUCCESS);
  return count;
}

/// Rank 0 refuses what rank 1 sends, and releases its own memory before rank 1 copies from that memory.
TEST_P(FailingRanksTest, WhatAFailedRankHasShownStaysForItsPeers) {
  if (GetParam().transport == TransportKind::shared_memory) return;  // processes have no handles of each other
  Ranks on = make(2);
  // The test holds a reference of its own. A handle that is used too late is then found by its count, without a crash.
  Buffer shown(*on.streams()[0].context, 4096);
  const Buffer watched = Buffer::borrow(shown.handle());
  std::promise<void> released;
  const std::thread::id no_thread;
  std::atomic<std::thread::id> owner{no_thread};
  std::atomic<cl_uint> at_use{0};
  std::atomic<bool> used{false};
  {
    const BeforeDriverCalls calls([&](std::string_view, cl_mem memory) {
      if (memory != watched.handle() || owner == no_thread || owner == std::this_thread::get_id() ||
          used.exchange(true))
        return CL_SUCCESS;
      released.get_future().wait();
      at_use = references(memory);
      return CL_SUCCESS;
    });
    EXPECT_THAT(error_of([&] {
                  on.group.run([&](Communicator& comm) {
                    const bool refuses = comm.rank() == 0;
                    if (refuses) owner = std::this_thread::get_id();
                    comm.barrier();
                    const Buffer other(*comm.stream().context, 4096), recv(*comm.stream().context, 4096);
                    const Communicator::Blocks sends{{0, 2048}, {2048, 2048}},
                        receives{{0, 2048}, {2048, refuses ? 2044U : 2048U}};
                    try {
                      comm.all_to_all_v(refuses ? shown.view() : other.view(), sends, recv.view(), receives);
                    } catch (const Error&) {
                      if (refuses) {
                        shown = Buffer();
                        released.set_value();
                      }
                      comm.stream().finish();
                      throw;
                    }
                  });
                }).what(),
                HasSubstr("rank 1 sends 2048 bytes to rank 0, which expects 2044"));
  }
  EXPECT_TRUE(used);
  EXPECT_GE(at_use, 2U) << "the test's own reference, and one that rank 0 has left";
  on.group.make({devices()[0]->stream.view()}, {});
  EXPECT_EQ(references(watched.handle()), 1U) << "nothing is kept after the end";
}

/// Any copy of any rank may fail: every rank gets an error, and everything may be freed.
TEST_P(FailingRanksTest, AFailedCopyInAnyRankIsEverybodysError) {
  constexpr std::int32_t ranks = 3;
  for (const StrategyKind kind : kinds)
    for (int nth = 1; nth < 20; nth += 3) {
      SCOPED_TRACE(testing::Message() << name(kind) << ", copy " << nth);
      Ranks on = make(ranks);
      std::atomic<int> copies{0}, refused{0};
      const BeforeDriverCalls calls([&](std::string_view call, cl_mem) {
        if (call != "clEnqueueCopyBuffer" || ++copies != nth) return CL_SUCCESS;
        ++refused;
        return CL_OUT_OF_RESOURCES;
      });
      std::string told;
      try {
        on.group.run([&](Communicator& world) {
          const StreamView stream = world.stream();
          const ExpertRank rank(world, 1, 6);
          const DeviceTensor x(stream, DType::f32, {2, 8}), ids(stream, DType::i32, {2, 2}, {0, 3, 2, 5}),
              weights(stream, DType::f32, {2, 2}, {1, 1, 1, 1}), out(stream, DType::f32, {2, 8});
          const auto strategy = Strategy::make(kind, rank, {8, 2, DType::f32});
          const RoutedRows rows = strategy->dispatch(stream, {x, ids, weights, {}});
          const DeviceTensor results(stream, DType::f32, {rows.rows, 8});
          strategy->combine(stream, results, out);
          world.wait(stream.record());
        });
      } catch (const Error& error) {
        told = error.what();
      }
      if (refused == 0) {  // there are no more copies
        EXPECT_EQ(told, "");
        break;
      }
      EXPECT_THAT(told, HasSubstr("copy failed: CL_OUT_OF_RESOURCES"));
      EXPECT_NE(on.group.failure(), "");
    }
}

/// Exceptions of any type, thrown outside every exchange.
TEST_P(FailingRanksTest, AnyExceptionOfARankEndsTheWaitOfItsPeers) {
  const std::pair<const char*, std::function<void()>> thrown[] = {
      {"rank 1: the host could not allocate memory", [] { throw std::bad_alloc(); }},
      {"rank 1: no space", [] { throw std::runtime_error("no space"); }},
      {"rank 1: an exception of a foreign type", [] { throw 7; }}};
  for (const auto& [cause, raise] : thrown) {
    Ranks on = make(2);
    std::string of_peer;
    EXPECT_ANY_THROW(on.group.run([&, &raise_it = raise](Communicator& comm) {
      if (comm.rank() == 1) raise_it();
      of_peer = error_of([&] { comm.barrier(); }).what();
    }));
    EXPECT_EQ(of_peer, "the group of ranks ended: " + std::string(cause));
  }
}

TEST_P(FailingRanksTest, WhatAStrategyRefusesOneRankReachesTheOthers) {
  Ranks on = make(2);
  const auto texts = failures(on, [&](Communicator& world) {
    const StreamView stream = world.stream();
    const ExpertRank rank(world, 1, 4);
    const std::int64_t slots = world.rank() == 1 ? 3 : 2;
    const DeviceTensor x(stream, DType::f32, {1, 8}), ids(stream, DType::i32, {1, slots}),
        weights(stream, DType::f32, {1, 2}, {1, 1});
    try {
      Strategy::make(StrategyKind::mc2, rank, {8, 2, DType::f32})->dispatch(stream, {x, ids, weights, {}});
    } catch (const Error&) {
      // Rank 1 calls nothing more until the group has ended.
      if (world.rank() == 1)
        while (on.group.failure().empty()) std::this_thread::sleep_for(milliseconds(5));
      throw;
    }
  });
  EXPECT_THAT(on.group.failure(), testing::StartsWith("rank 1: "));
  EXPECT_THAT(on.group.failure(), testing::Not(HasSubstr("waited")));
  EXPECT_THAT(texts[0], HasSubstr(on.group.failure()));
}

/// Sends from rank 0 to rank 1; threads carry the bytes where the setting says so.
std::vector<unsigned char> broadcast(Ranks& on) {
  std::vector<unsigned char> came(1000);
  on.group.run([&](Communicator& comm) {
    const std::vector<unsigned char> bytes(1000, comm.rank() == 0 ? 7 : 0);
    const Buffer data(*comm.stream().context, 1000);
    write_blocking(comm.stream(), data.view(), bytes.data(), bytes.size());
    comm.broadcast(data.view(), 0);
    comm.wait(comm.stream().record());
    if (comm.rank() == 1) read_blocking(comm.stream(), data.view(), came.data(), came.size());
  });
  return came;
}

TEST_P(FailingRanksTest, AnEventThatCannotBeSetAtOnceIsSetTheNextTime) {
  for (int nth = 1; nth <= 4; ++nth) {
    Ranks on = make(2);
    std::atomic<int> sets{0};
    const BeforeDriverCalls calls([&](std::string_view call, cl_mem) {
      return call == "clSetUserEventStatus" && ++sets == nth ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
    });
    EXPECT_EQ(broadcast(on), std::vector<unsigned char>(1000, 7));
  }
}

/// A driver that sets no user event. Commands that wait for such an event stay on their queues for good, so the test
/// has contexts of its own. They are PoCL's: NVIDIA's driver waits for these commands when it releases the queue.
class EventsThatAreNeverSet : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  static Device pocl() {
    for (const auto& device : devices())
      if (device->caps().platform_name == "Portable Computing Language") return device->context->devices().front();
    throw std::runtime_error("no PoCL");
  }
  static ContextOptions tracing() {
    ContextOptions options;
    options.trace = true;
    return options;
  }
  static cl_int refuse(std::string_view call, cl_mem /*memory*/) {
    return call == "clSetUserEventStatus" ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
  }
  void TearDown() override { EXPECT_LT(Clock::now() - begin_, milliseconds(20000)); }

  std::unique_ptr<Context> first_ = Context::create({pocl()}, tracing()),
                           second_ = Context::create({pocl()}, tracing());
  Stream from_{*first_}, to_{*second_};
  Clock::time_point begin_ = Clock::now();
};

TEST_F(EventsThatAreNeverSet, EndTheGroupAndEveryWaitInIt) {
  RankGroup group({from_, to_}, {milliseconds(500), TransportKind::staged});
  const BeforeDriverCalls calls(refuse);
  EXPECT_THROW(group.run([](Communicator& comm) {
    const Buffer data(*comm.stream().context, 1000);
    comm.broadcast(data.view(), 0);
    comm.wait(comm.stream().record());
  }),
               Error);
  EXPECT_NE(group.failure(), "");
}

TEST_F(EventsThatAreNeverSet, EndTheProbeOfTransports) {
  const BeforeDriverCalls calls(refuse);
  const Error error = error_of([&] { RankGroup({from_, to_}, {milliseconds(500), std::nullopt}); });
  EXPECT_THAT(error.what(), HasSubstr("clSetUserEventStatus failed, and failed again"));
}

TEST_F(EventsThatAreNeverSet, EndWhateverElseWaitsForTheStream) {
  RankGroup group({from_, to_}, {milliseconds(500), TransportKind::staged});
  const BeforeDriverCalls calls(refuse);
  const auto ended = [](const std::function<void()>& wait) {
    const Error error = error_of(wait);
    EXPECT_EQ(error.code(), ErrorCode::device_error);
    EXPECT_THAT(error.what(), HasSubstr("did not end for 2000 ms after the driver refused to set an event"));
  };
  const auto run = [&] {
    group.run([&](Communicator& comm) {
      const StreamView stream = comm.stream();
      const Buffer data(*stream.context, 1000);
      try {
        comm.broadcast(data.view(), 0);
      } catch (const Error&) {  // the group may have ended meanwhile; the stream waits all the same
      }
      if (comm.rank() == 0) return;
      std::vector<unsigned char> bytes(1000);
      enqueue_fill(stream, data.view(), 0);  // recorded in the trace
      ended([&] { stream.finish(); });
      ended([&] { read_blocking(stream, data.view(), bytes.data(), bytes.size()); });
      ended([&] { write_blocking(stream, data.view(), bytes.data(), bytes.size()); });
      ended([&] { stream.trace->summary(); });
    });
  };
  EXPECT_THROW(run(), Error);
}

}  // namespace
}  // namespace moecl::test
