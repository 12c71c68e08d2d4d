// Groups of ranks through the C interface.
#include "tests/host/c_ranks.h"

#include <moecl/npu_distribute.h>

#include <future>
#include <thread>
#include <unistd.h>

#include "host/npu/describe_distribute.hpp"
#include "tests/host/c_group.hpp"
#include "tests/host/c_npu_case.hpp"

namespace moecl::test {
namespace {

/// Numbers of the usable devices.
std::vector<std::int32_t> usable_devices() {
  std::vector<std::int32_t> usable;
  std::int32_t count = 0;
  EXPECT_OK(moecl_device_count(&count));
  for (std::int32_t i = 0; i < count; ++i) {
    auto info = sized<moecl_device_info>();
    EXPECT_OK(moecl_device_describe(i, &info));
    if (info.refused[0] == '\0') usable.push_back(i);
  }
  return usable;
}

TEST(CRanks, DispatchAndCombineInACProgram) {
  std::vector<std::vector<std::int32_t>> places;
  for (const std::int32_t device : usable_devices()) places.push_back({device});
  ASSERT_FALSE(places.empty());
  if (places.size() > 1) places.push_back(usable_devices());
  for (const auto& place : places)
    for (const std::int32_t ranks : {2, 4})
      for (const moecl_transport transport : {MOECL_TRANSPORT_PROBED, MOECL_TRANSPORT_STAGED}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks on " << place.size() << " devices from " << place.front()
                                        << ", transport " << transport);
        std::int32_t wrong = -1;
        EXPECT_EQ(c_ranks_run(place.data(), static_cast<std::int32_t>(place.size()), ranks, transport, &wrong), 1);
        EXPECT_EQ(wrong, 0);
      }
}

// The caller's user event holds a collective back; other events tell when the collective is done.
TEST(CRanks, CollectivesWaitForEventsAndGiveThem) {
  CGroup on(2);
  cl_event gate = clCreateUserEvent(on.callers.front().context, nullptr), done[2] = {};
  std::vector<moecl_device_array> gathered(2);
  const std::uint64_t sizes[] = {4, 4};
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    const moecl_device_array mine = on.allocate<float>(rank, {static_cast<float>(rank + 1)});
    gathered[rank] = on.allocate(rank, std::vector<float>(2, -1));
    if (rank == 0) {
      EXPECT_OK(moecl_stream_mark(on.streams[rank], 1, &gate, nullptr));
    }
    EXPECT_OK(moecl_all_gather(communicator, mine, gathered[rank], sizes));
    EXPECT_OK(moecl_stream_mark(on.streams[rank], 0, nullptr, &done[rank]));
  });
  for (cl_event event : done) {
    cl_int status = CL_COMPLETE;
    EXPECT_EQ(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr), CL_SUCCESS);
    EXPECT_NE(status, CL_COMPLETE);
  }
  EXPECT_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  EXPECT_EQ(clWaitForEvents(2, done), CL_SUCCESS);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(on.read(rank, gathered[rank], 2), (std::vector<float>{1, 2}));
    clReleaseEvent(done[rank]);
  }
  clReleaseEvent(gate);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "stream", moecl_stream_mark(nullptr, 0, nullptr, nullptr));
}

TEST(CRanks, Collectives) {
  CGroup on(3);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    const auto mine = static_cast<float>(rank);
    const moecl_device_array nothing{};
    EXPECT_OK(moecl_barrier(communicator));

    const std::uint64_t sizes[] = {8, 0, 4};
    const moecl_device_array gathered = on.allocate(rank, std::vector<float>(3, -1)),
                             two = on.allocate<float>(rank, {mine, mine + 10});
    EXPECT_OK(moecl_all_gather(communicator, rank == 1 ? nothing : two, gathered, sizes));
    EXPECT_EQ(on.read(rank, gathered, 3), (std::vector<float>{0, 10, 2}));

    EXPECT_OK(moecl_broadcast(communicator, two, 8, 2));
    EXPECT_EQ(on.read(rank, two, 2), (std::vector<float>{2, 12}));

    const std::uint64_t offsets[] = {8, 4, 0}, bytes[] = {4, 4, 4}, places[] = {0, 4, 8};
    const moecl_device_array sends = on.allocate<float>(rank, {100 * mine, 100 * mine + 1, 100 * mine + 2}),
                             received = on.allocate(rank, std::vector<float>(3, -1));
    EXPECT_OK(moecl_all_to_all_v(communicator, sends, offsets, bytes, received, places, bytes));
    const auto block = static_cast<float>(2 - rank);
    EXPECT_EQ(on.read(rank, received, 3), (std::vector<float>{block, 100 + block, 200 + block}));

    const std::int64_t rows[] = {1, 0, 2};
    const moecl_device_array data = on.allocate<float>(rank, {mine, 1, mine * mine, 2, 10 * mine, 3}),
                             part = on.allocate(rank, std::vector<float>(4, -1));
    EXPECT_OK(moecl_reduce_scatter(communicator, data, rank == 1 ? nothing : part, MOECL_F32, 2, rows));
    const std::vector<float> sums[] = {{3, 3, -1, -1}, {-1, -1, -1, -1}, {5, 6, 30, 9}};
    EXPECT_EQ(on.read(rank, part, 4), sums[rank]);
    EXPECT_OK(moecl_all_reduce(communicator, data, MOECL_F32, 3, 2));
    EXPECT_EQ(on.read(rank, data, 6), (std::vector<float>{3, 3, 5, 6, 30, 9}));

    auto info = sized<moecl_communicator_info>();
    EXPECT_OK(moecl_communicator_describe(communicator, &info));
    EXPECT_EQ(info.rank, static_cast<std::int32_t>(rank));
    EXPECT_EQ(info.size, 3);
    EXPECT_GT(info.bytes_received, 0U);
  });
  EXPECT_EQ(on.failure(), "");
}

using WindowHandle = Handle<moecl_window, moecl_window_destroy>;

/// Every device there is: several platforms exchange through pinned host memory.
std::vector<const TestDevice*> all_devices() {
  std::vector<const TestDevice*> all;
  for (const auto& device : devices()) all.push_back(device.get());
  return all;
}

TEST(CRanks, PutsArriveAtTheFence) {
  for (const auto& place : {std::vector<const TestDevice*>{devices()[0].get()}, all_devices()}) {
    SCOPED_TRACE(testing::Message() << place.size() << " devices");
    CGroup on(3, 0, place);
    on.run([&](std::size_t rank, moecl_communicator* communicator) {
      WindowHandle window;
      ASSERT_OK(moecl_window_create(communicator, 24, window.out()));
      moecl_device_array memory{};
      ASSERT_OK(moecl_window_memory(window, &memory));
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
        const std::uint64_t half = epoch % 2 * 12;
        const auto value = [&](std::size_t from, std::size_t to) {
          return static_cast<float>(100 * epoch + 10 * from + to);
        };
        for (std::size_t to = 0; to < 3; ++to) {
          moecl_device_array source = on.allocate<float>(rank, {-1, value(rank, to)});
          source.offset_bytes = 4;
          EXPECT_OK(moecl_window_put(window, static_cast<std::int32_t>(to), half + 4 * rank, source, 4));
        }
        EXPECT_OK(moecl_window_fence(window));
        EXPECT_EQ(on.read(rank, {memory.memory, memory.offset_bytes + half}, 3),
                  (std::vector<float>{value(0, rank), value(1, rank), value(2, rank)}));
      }
    });
    EXPECT_EQ(on.failure(), "");
  }
}

TEST(CRanks, RefusesWrongWindowsAndPuts) {
  CGroup on(2);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    WindowHandle window;
    ASSERT_OK(moecl_window_create(communicator, 16, window.out()));
    const moecl_device_array source = on.allocate<float>(rank, {1, 2});
    const auto put = [&](std::int32_t peer, std::uint64_t offset, moecl_device_array from, std::uint64_t bytes) {
      return moecl_window_put(window, peer, offset, from, bytes);
    };
    const moecl_status invalid = MOECL_INVALID_ARGUMENT;
    EXPECT_FAILS(invalid, "rank 2 is not in [0, 2)", put(2, 0, source, 4));
    EXPECT_FAILS(invalid, "8 bytes at 12 leave a window of 16", put(0, 12, source, 8));
    EXPECT_FAILS(invalid, "source: 12 bytes of a cl_mem with 8 from 0 on", put(0, 0, source, 12));
    EXPECT_FAILS(invalid, "source: the cl_mem is null", put(0, 0, {}, 4));
    EXPECT_FAILS(invalid, "window: the pointer is null", moecl_window_put(nullptr, 0, 0, source, 4));
    EXPECT_FAILS(invalid, "window: the pointer is null", moecl_window_fence(nullptr));
    EXPECT_FAILS(invalid, "out_memory: the pointer is null", moecl_window_memory(window, nullptr));
    EXPECT_OK(moecl_window_fence(window));  // the group is whole
    EXPECT_FAILS(invalid, "", moecl_window_create(communicator, 16 + 4 * rank, window.out()));
  });
  EXPECT_THAT(on.failure(), testing::HasSubstr("window: bytes: rank 1 has 20, rank 0 has 16"));
}

TEST(CRanks, PartsAndHandlesInAnyOrder) {
  CGroup on(3);
  on.group.reset();
  on.streams[1].reset();
  on.contexts.clear();
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    if (rank == 0) return;
    CommunicatorHandle part;
    const std::int32_t members[] = {2, 1};
    ASSERT_OK(moecl_communicator_part(communicator, members, 2, part.out()));
    auto info = sized<moecl_communicator_info>();
    EXPECT_OK(moecl_communicator_describe(part, &info));
    EXPECT_EQ(info.rank, rank == 2 ? 0 : 1);
    EXPECT_EQ(info.size, 2);
    const moecl_device_array data = on.allocate<float>(rank, {static_cast<float>(rank)});
    EXPECT_OK(moecl_broadcast(part, data, 4, 0));
    EXPECT_OK(moecl_barrier(part));
    if (rank == 2) {
      EXPECT_EQ(on.read(rank, data, 1), std::vector<float>{2});
    }
    const std::int32_t without[] = {0};
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "is not among its 1 members",
                 moecl_communicator_part(communicator, without, 1, part.out()));
  });
}

TEST(CRanks, TheFirstCauseEndsTheGroup) {
  CGroup refusing(3);
  refusing.run([&](std::size_t rank, moecl_communicator* communicator) {
    // A refused argument of one rank ends the wait of the others.
    const moecl_status status = rank == 1 ? moecl_broadcast(communicator, {}, 8, 0) : moecl_barrier(communicator);
    EXPECT_EQ(status, rank == 1 ? MOECL_INVALID_ARGUMENT : MOECL_DEADLINE_EXCEEDED);
    EXPECT_THAT(moecl_last_error_message(), testing::HasSubstr("data: the cl_mem is null"));
    EXPECT_FAILS(MOECL_DEADLINE_EXCEEDED, "rank 1: data: the cl_mem is null", moecl_barrier(communicator));
  });
  EXPECT_THAT(refusing.failure(), testing::HasSubstr("rank 1: data: the cl_mem is null"));

  CGroup aborted(2);
  EXPECT_OK(moecl_rank_group_abort(aborted.group, "the disk is full"));
  EXPECT_OK(moecl_rank_group_abort(aborted.group, "and the network is down"));
  EXPECT_EQ(aborted.failure(), "the disk is full");
  char cut[9];
  EXPECT_OK(moecl_rank_group_failure(aborted.group, cut, sizeof(cut)));
  EXPECT_STREQ(cut, "the disk");
  EXPECT_FAILS(MOECL_DEADLINE_EXCEEDED, "the disk is full", moecl_barrier(aborted.communicators[0]));

  const CGroup late(2, 50);
  EXPECT_FAILS(MOECL_DEADLINE_EXCEEDED, "rank 0 waited 50 ms for rank 1", moecl_barrier(late.communicators[0]));
}

// Threads join as processes do.
TEST(CRanks, RanksJoinShrinkAndComeBack) {
  const std::string name = "c_ranks_test-" + std::to_string(getpid());
  CGroup on(2);
  std::promise<void> shrunk;
  const auto join = [&](std::int32_t rank, moecl_rank_group** out) {
    return moecl_rank_group_join(name.c_str(), rank, 2, on.streams[static_cast<std::size_t>(rank)], nullptr, out);
  };
  const auto meet = [](moecl_rank_group* group, std::int32_t rank) {
    CommunicatorHandle communicator;
    const moecl_status status = moecl_rank_group_communicator(group, rank, communicator.out());
    return status == MOECL_OK ? moecl_barrier(communicator) : status;
  };
  std::thread other([&] {
    GroupHandle first, second;
    EXPECT_OK(join(1, first.out()));
    EXPECT_OK(meet(first, 1));
    first.reset();
    shrunk.get_future().wait();
    EXPECT_OK(join(1, second.out()));
    EXPECT_OK(meet(second, 1));
  });
  GroupHandle group, smaller, whole;
  EXPECT_OK(join(0, group.out()));
  EXPECT_OK(meet(group, 0));
  EXPECT_FAILS(MOECL_DEADLINE_EXCEEDED, "rank 1", meet(group, 0));
  EXPECT_OK(moecl_rank_group_shrink(group, smaller.out()));
  std::int32_t size = 0, ranks[2] = {-1, -1};
  EXPECT_OK(moecl_rank_group_members(smaller, &size, ranks));
  EXPECT_EQ(size, 1);
  EXPECT_EQ(ranks[0], 0);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "the number of ranks: the pointer is null",
               moecl_rank_group_local(smaller, nullptr, ranks));
  EXPECT_OK(meet(smaller, 0));
  shrunk.set_value();
  EXPECT_OK(moecl_rank_group_rejoin(smaller, whole.out()));
  EXPECT_OK(moecl_rank_group_members(whole, &size, nullptr));
  EXPECT_EQ(size, 2);
  EXPECT_OK(meet(whole, 0));
  other.join();

  moecl_rank_group* none = nullptr;
  EXPECT_FAILS(MOECL_UNSUPPORTED, "ranks are threads", moecl_rank_group_shrink(on.group, &none));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "name: the pointer is null",
               moecl_rank_group_join(nullptr, 0, 2, on.streams[0], nullptr, &none));
  EXPECT_FAILS(MOECL_UNSUPPORTED, "no mpirun", moecl_rank_group_from_mpi(nullptr, on.streams[0], nullptr, &none));
}

TEST(CRanks, AProcessJoinsWithSeveralRanks) {
  const std::string name = "c_ranks_test-several-" + std::to_string(getpid());
  CGroup on(4);
  const auto take_part = [&](std::int32_t first) {
    const std::int32_t ranks[] = {first, first + 1};
    const auto at = static_cast<std::size_t>(first);
    moecl_stream* const streams[] = {on.streams[at], on.streams[at + 1]};
    GroupHandle group;
    EXPECT_OK(moecl_rank_group_join_ranks(name.c_str(), ranks, streams, 2, 4, nullptr, group.out()));
    std::int32_t count = 0, local[2] = {-1, -1};
    EXPECT_OK(moecl_rank_group_local(group, &count, local));
    EXPECT_EQ(count, 2);
    EXPECT_TRUE(std::equal(local, local + 2, ranks));
    for (std::int32_t peer = 0; peer < 4; ++peer) {
      auto info = sized<moecl_transport_info>();
      if (peer == first) continue;
      EXPECT_OK(moecl_rank_group_transport(group, peer, first, &info));
      EXPECT_EQ(info.transport, peer == first + 1 ? MOECL_TRANSPORT_SHARED_CONTEXT : MOECL_TRANSPORT_SHARED_MEMORY);
    }
    std::vector<std::thread> threads;
    for (const std::int32_t rank : ranks)
      threads.emplace_back([&group, rank] {
        CommunicatorHandle communicator;
        EXPECT_OK(moecl_rank_group_communicator(group, rank, communicator.out()));
        EXPECT_OK(moecl_barrier(communicator));
      });
    for (std::thread& thread : threads) thread.join();
  };
  std::thread other([&] { take_part(2); });
  take_part(0);
  other.join();

  moecl_rank_group* none = nullptr;
  const std::int32_t twice[] = {0, 0};
  moecl_stream* const streams[] = {on.streams[0], on.streams[1]};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "rank 0 is named twice",
               moecl_rank_group_join_ranks(name.c_str(), twice, streams, 2, 4, nullptr, &none));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "ranks: the pointer is null",
               moecl_rank_group_join_ranks(name.c_str(), nullptr, streams, 2, 4, nullptr, &none));
  EXPECT_FAILS(MOECL_UNSUPPORTED, "no mpirun", moecl_rank_group_from_mpi_ranks(nullptr, streams, 2, nullptr, &none));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "streams: -1 of them",
               moecl_rank_group_from_mpi_ranks(nullptr, streams, -1, nullptr, &none));
}

TEST(CRanks, WaitsForARanksStreamUntilTheDeadline) {
  CGroup on(2, 100);
  EXPECT_OK(moecl_communicator_wait(on.communicators[0]));
  cl_command_queue queue = nullptr;
  EXPECT_OK(moecl_stream_native(on.streams[0], &queue));
  cl_event gate = clCreateUserEvent(on.callers.front().context, nullptr);
  EXPECT_EQ(clEnqueueMarkerWithWaitList(queue, 1, &gate, nullptr), CL_SUCCESS);
  EXPECT_FAILS(MOECL_DEADLINE_EXCEEDED, "a command did not complete within 100 ms",
               moecl_communicator_wait(on.communicators[0]));
  EXPECT_EQ(on.failure(), "a command did not complete within 100 ms");
  EXPECT_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  EXPECT_OK(moecl_stream_finish(on.streams[0]));
  clReleaseEvent(gate);
}

TEST(CRanks, RefusesWrongArguments) {
  CGroup on(2);
  moecl_rank_group* made = nullptr;
  moecl_stream* const streams[] = {on.streams[0], nullptr};
  auto options = sized<moecl_rank_group_options>();
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "no ranks", moecl_rank_group_create(streams, 0, nullptr, &made));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "stream: the pointer is null",
               moecl_rank_group_create(streams, 2, &options, &made));
  options.deadline_ms = -5;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "-5 ms", moecl_rank_group_create(streams, 1, &options, &made));
  options.deadline_ms = 0, options.transport = 6;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.transport: 6 is not in [0, 5]",
               moecl_rank_group_create(streams, 1, &options, &made));
  EXPECT_EQ(made, nullptr);
  CommunicatorHandle communicator;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "rank 2 is not in [0, 2)",
               moecl_rank_group_communicator(on.group, 2, communicator.out()));
  auto info = sized<moecl_transport_info>();
  ASSERT_OK(moecl_rank_group_transport(on.group, 0, 1, &info));
  EXPECT_EQ(info.transport, MOECL_TRANSPORT_SHARED_CONTEXT);
  EXPECT_THAT(info.reason, testing::HasSubstr("same device"));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "no pair 0 -> 2", moecl_rank_group_transport(on.group, 0, 2, &info));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "communicator: the pointer is null", moecl_barrier(nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "communicator: the pointer is null", moecl_communicator_wait(nullptr));
}

/// Runs each rank of the case in a cl_context and a thread of its own.
template <class Args, class CArgs>
void run_together(const TestDevice& device, const std::string& name, const COperator<CArgs, moecl_communicator>& with,
                  std::int32_t refusing = -1) {
  SCOPED_TRACE(name);
  const auto ranks = cli::OperatorCase::open(data_path("operators/" + name + ".json"))
                         .rules["parameters"]["ep_world_size"]
                         .get<std::int32_t>();
  std::list<CallersCase> cases;
  std::list<ContextHandle> contexts;
  std::vector<StreamHandle> streams(static_cast<std::size_t>(ranks));
  std::vector<moecl_stream*> handles;
  for (StreamHandle& stream : streams) {
    const CallersCase& of = cases.emplace_back(device, name, Gaps(), static_cast<std::int32_t>(cases.size()));
    ASSERT_OK(moecl_context_wrap(of.caller.context, nullptr, contexts.emplace_back().out()));
    ASSERT_OK(moecl_stream_wrap(contexts.back(), of.caller.queue, stream.out()));
    handles.push_back(stream);
  }
  GroupHandle group;
  ASSERT_OK(moecl_rank_group_create(handles.data(), ranks, nullptr, group.out()));
  std::vector<std::thread> threads;
  for (CallersCase& of : cases)
    threads.emplace_back([&] {
      CommunicatorHandle communicator;
      ASSERT_OK(moecl_rank_group_communicator(group, of.rank, communicator.out()));
      const auto spoil = [&](CArgs& args, moecl_call&) {
        if (of.rank == refusing) args.size_bytes = 3;
      };
      const Outcome outcome = run_case_on<Args, CArgs, moecl_communicator>(
          communicator, handles[static_cast<std::size_t>(of.rank)], of, with, spoil);
      EXPECT_OK(outcome.fault);
      EXPECT_EQ(outcome.call, refusing < 0 ? MOECL_OK : MOECL_INVALID_ARGUMENT) << moecl_last_error_message();
      if (refusing < 0) return;
      EXPECT_THAT(moecl_last_error_message(),
                  testing::HasSubstr(of.rank == refusing ? "size_bytes 3 is no size" : "refuses its arguments"));
      EXPECT_OK(moecl_barrier(communicator));  // the group is whole
    });
  for (std::thread& thread : threads) thread.join();
  if (refusing >= 0) return;
  std::vector<cli::OutputTensor> outputs;
  for (CallersCase& of : cases) std::move(of.outputs.begin(), of.outputs.end(), std::back_inserter(outputs));
  EXPECT_GE(expect_outputs(cases.front().recorded, outputs), streams.size());
}

class CRanksTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(CRanksTest);

constexpr COperator<moecl_moe_distribute_dispatch_v2_args, moecl_communicator> dispatch_v2{
    moecl_moe_distribute_dispatch_v2_defaults, moecl_moe_distribute_dispatch_v2_plan, moecl_moe_distribute_dispatch_v2};
constexpr COperator<moecl_moe_distribute_combine_v2_args, moecl_communicator> combine_v2{
    moecl_moe_distribute_combine_v2_defaults, moecl_moe_distribute_combine_v2_plan, moecl_moe_distribute_combine_v2};

constexpr COperator<moecl_moe_distribute_dispatch_args, moecl_communicator> dispatch{
    moecl_moe_distribute_dispatch_defaults, moecl_moe_distribute_dispatch_plan, moecl_moe_distribute_dispatch};
constexpr COperator<moecl_moe_distribute_combine_args, moecl_communicator> combine{
    moecl_moe_distribute_combine_defaults, moecl_moe_distribute_combine_plan, moecl_moe_distribute_combine};

TEST_P(CRanksTest, RecordedCases) {
  run_together<npu::MoeDistributeDispatchArgs>(device(), "npu_moe_distribute_dispatch_v2/ep4_uneven_global_bs",
                                               dispatch);
  run_together<npu::MoeDistributeCombineArgs>(device(), "npu_moe_distribute_combine_v2/ep4_uneven_global_bs", combine);
  for (const char* name : {"ep2_special_zero_copy_const", "ep4_shared1", "ep4_uneven_global_bs", "ep4_e8_k3_quant"})
    run_together<npu::MoeDistributeDispatchV2Args>(device(), std::string("npu_moe_distribute_dispatch_v2/") + name,
                                                   dispatch_v2);
  for (const char* name : {"ep2_special_zero_copy_const", "ep4_shared1_int8wire", "hierarchy_two_servers_ep4"})
    run_together<npu::MoeDistributeCombineV2Args>(device(), std::string("npu_moe_distribute_combine_v2/") + name,
                                                  combine_v2);
}

TEST_P(CRanksTest, EveryRankHearsOfAStructThatCannotBeRead) {
  run_together<npu::MoeDistributeDispatchV2Args>(device(), "npu_moe_distribute_dispatch_v2/ep2_e4_bf16", dispatch_v2,
                                                 1);
}

}  // namespace
}  // namespace moecl::test
