#include <moecl/opencl.hpp>

#include <gmock/gmock.h>

#include <thread>

#include "runtime/kernel.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/runtime/blocking_calls.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

const ProgramSource adding{"adding", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void adding(__global int* x, ulong first, int value) {
  x[first] = 2 * x[first] + value;
})"};

/// A user event that commands wait for.
class Gate {
 public:
  explicit Gate(const Context& context) : event_(clCreateUserEvent(context.handle(), nullptr)) {}
  ~Gate() { clReleaseEvent(event_); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  WaitList list() const { return {&event_, 1}; }
  void set(cl_int status) const { ASSERT_EQ(clSetUserEventStatus(event_, status), CL_SUCCESS); }

 private:
  cl_event event_;
};

template <class Query, class Object>
cl_uint count(Query query, Object object, cl_uint what) {
  cl_uint references = 0;
  EXPECT_EQ(query(object, what, sizeof(references), &references, nullptr), CL_SUCCESS);
  return references;
}

class StreamTest : public OnEveryDevice {
 protected:
  StreamTest() : memory_(context(), 64) { enqueue_fill(stream(), memory_.view(), 0); }
  Context& context() const { return *device().context; }
  StreamView stream() const { return device().stream; }
  TensorView element(std::uint64_t i) const { return {memory_.view().slice(4 * i, 4), DType::i32, {1}}; }
  void add(StreamView to, std::uint64_t i, std::int32_t value, Submit submit = {}) const {
    launch(to, {&adding, "", "adding"}, {}, submit, {"add", "", "", 8, 0}, element(i), first_element(element(i)),
           value);
  }
  int read(std::uint64_t i) const {
    int value = -1;
    read_blocking(stream(), element(i).buffer, &value, 4);
    return value;
  }
  Buffer memory_;
};
MOECL_ON_EVERY_DEVICE(StreamTest);

TEST_P(StreamTest, BorrowsEveryHandleAndGivesItBackOnce) {
  cl_device_id id = context().devices()[0].handle;
  cl_int status = CL_SUCCESS;
  const cl_context cl = clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status);
  const cl_command_queue queue = clCreateCommandQueue(cl, id, 0, &status);
  const cl_mem mem = clCreateBuffer(cl, CL_MEM_READ_WRITE, 64, nullptr, &status);
  ASSERT_EQ(status, CL_SUCCESS);
  // From the first command on, PoCL's queue holds its last command, which holds the queue. So count after a command.
  const cl_int zero = 0;
  ASSERT_EQ(clEnqueueFillBuffer(queue, mem, &zero, 4, 0, 64, 0, nullptr, nullptr), CL_SUCCESS);
  ASSERT_EQ(clFinish(queue), CL_SUCCESS);
  const auto references = [&] {
    return std::array{count(clGetContextInfo, cl, CL_CONTEXT_REFERENCE_COUNT),
                      count(clGetCommandQueueInfo, queue, CL_QUEUE_REFERENCE_COUNT),
                      count(clGetMemObjectInfo, mem, CL_MEM_REFERENCE_COUNT)};
  };
  // Both drivers may let go of a finished command late: seen in 1 of 100 rounds of OpenCL alone, for up to 12 ms.
  const auto settled = [&] {
    auto last = references();
    for (int quiet_ms = 0; quiet_ms < 100; ++quiet_ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (const auto now = references(); now != last) {
        last = now;
        quiet_ms = 0;
      }
    }
    return last;
  };
  const auto before = settled();
  {
    const auto borrowed = Context::borrow(cl);
    EXPECT_EQ(borrowed->devices()[0].caps.name, device().caps().name);
    Stream on = Stream::borrow(*borrowed, queue);
    Stream moved = std::move(on);
    EXPECT_EQ(on.view().queue, nullptr);
    Buffer buffer = Buffer::borrow(mem);
    EXPECT_EQ(buffer.size_bytes(), 64u);
    Buffer other;
    other = std::move(buffer);
    EXPECT_EQ(buffer.handle(), nullptr);
    const auto during = settled();
    EXPECT_EQ(during[1], before[1] + 1);
    EXPECT_EQ(during[2], before[2] + 1);
    // The caller's memory at an offset, on the caller's queue.
    enqueue_fill(moved, other.view(), 1);
    launch(moved, {&adding, "", "adding"}, {}, {}, {}, TensorView(other.view(), DType::i32, {16}), 5L,
           std::int32_t{40});
    moved.finish();
  }
  EXPECT_EQ(settled(), before);
  std::array<int, 16> values{}, expected{};
  expected.fill(1);
  expected[5] = 42;
  ASSERT_EQ(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, values.data(), 0, nullptr, nullptr), CL_SUCCESS);
  EXPECT_EQ(values, expected);
  clReleaseMemObject(mem);
  clReleaseCommandQueue(queue);
  clReleaseContext(cl);
}

TEST_P(StreamTest, GivesBackAContextThatItCouldNotSetUp) {
  cl_device_id id = context().devices()[0].handle;
  cl_int status = CL_SUCCESS;
  const cl_context cl = clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status);
  ASSERT_EQ(status, CL_SUCCESS);
  const cl_uint before = count(clGetContextInfo, cl, CL_CONTEXT_REFERENCE_COUNT);
  ContextOptions options;
  options.tuning = [](const DeviceCaps&) -> Tuning { throw std::runtime_error("no table"); };
  EXPECT_THROW(Context::borrow(cl, options), std::runtime_error);
  EXPECT_EQ(count(clGetContextInfo, cl, CL_CONTEXT_REFERENCE_COUNT), before);
  clReleaseContext(cl);
}

/// Also if both contexts are made of copies of one device.
TEST_P(StreamTest, AContextBeginsWithoutFailedVariants) {
  const auto first = Context::create({context().devices()[0]});
  first->devices()[0].failed_variants->add("variant", "why");
  const auto second = Context::create(first->devices());
  EXPECT_TRUE(first->devices()[0].failed_variants->contains("variant"));
  EXPECT_EQ(second->devices()[0].failed_variants->size(), 0);
}

TEST_P(StreamTest, RefusesQueuesItCannotUse) {
  cl_int status = CL_SUCCESS;
  const auto refused = [&](cl_command_queue queue) { return error_of([&] { Stream::borrow(context(), queue); }); };
  EXPECT_THAT(refused(nullptr).what(), HasSubstr("null"));
  const cl_command_queue unordered = clCreateCommandQueue(context().handle(), context().devices()[0].handle,
                                                          CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &status);
  if (status == CL_SUCCESS) {
    EXPECT_THAT(refused(unordered).what(), HasSubstr("out-of-order"));
    clReleaseCommandQueue(unordered);
  } else {
    EXPECT_EQ(status, CL_INVALID_QUEUE_PROPERTIES);  // the driver has none to offer
  }
  const auto other = Context::create(context().devices());
  const Stream foreign(*other);
  EXPECT_THAT(refused(foreign.view().queue).what(), HasSubstr("another cl_context"));
  EXPECT_THAT(error_of([&] { Stream(context(), 7); }).what(), HasSubstr("device index 7"));
}

TEST_P(StreamTest, OrdersCommandsAcrossQueues) {
  const Stream first(context()), second(context());
  device().stream.finish();
  const Gate gate(context());
  Event added;
  add(first, 0, 5, {gate.list(), &added});
  const cl_event wait = added.handle();
  add(second, 0, 100, {{&wait, 1}, nullptr});
  first.view().flush();
  second.view().flush();
  EXPECT_FALSE(added.is_complete());
  EXPECT_EQ(read(0), 0) << "nothing may run before the gate opens";
  gate.set(CL_COMPLETE);
  second.finish();
  EXPECT_TRUE(added.is_complete());
  EXPECT_EQ(read(0), 110);
}

TEST_P(StreamTest, HasOneSideQueueUntilItGoes) {
  ContextOptions traced;
  traced.trace = true;
  const auto context = Context::create({this->context().devices()[0]}, traced);
  cl_uint users = 0;
  cl_command_queue side = nullptr;
  {
    const Stream stream(*context), other(*context);
    side = stream.view().side().queue;
    EXPECT_EQ(stream.view().side().queue, side);
    EXPECT_NE(side, stream.view().queue);
    EXPECT_NE(other.view().side().queue, side);
    EXPECT_EQ(stream.view().side().device, stream.view().device);
    EXPECT_NE(stream.view().side().trace, nullptr);
    StreamView untraced = stream;
    untraced.trace = nullptr, untraced.compiles_only = true;
    EXPECT_EQ(untraced.side().trace, nullptr);
    EXPECT_TRUE(untraced.side().compiles_only);
    EXPECT_EQ(stream.view().side().trace, context->trace());
    side = stream.view().side().queue;
    ASSERT_EQ(clRetainCommandQueue(side), CL_SUCCESS);
    users = count(clGetCommandQueueInfo, side, CL_QUEUE_REFERENCE_COUNT);
  }
  EXPECT_EQ(count(clGetCommandQueueInfo, side, CL_QUEUE_REFERENCE_COUNT), users - 1);
  clReleaseCommandQueue(side);
}

TEST_P(StreamTest, HonoursTheWaitListOfEmptyWork) {
  const Gate gate(context());
  Event done;
  launch(stream(), {&adding, "", "adding"}, {{0, 1, 1}, {1, 1, 1}}, {gate.list(), &done}, {}, element(0), 0L,
         std::int32_t{1});
  stream().flush();
  EXPECT_FALSE(done.is_complete());
  gate.set(CL_COMPLETE);
  done.wait();
  EXPECT_TRUE(done.is_complete());
}

TEST_P(StreamTest, ReportsAFailedCommand) {
  const Stream own(context());
  const Gate gate(context());
  Event done;
  add(own, 0, 1, {gate.list(), &done});
  own.view().flush();
  const BlockingCalls calls;
  std::thread fails_during_finish([&] {
    while (calls.names().empty()) std::this_thread::yield();
    gate.set(-9999);
  });
  bool told = false;
  try {
    own.finish();
  } catch (const Error& error) {
    told = error.code() == ErrorCode::device_error;
  }
  fails_during_finish.join();
  EXPECT_EQ(told, device().caps().finish_reports_failures);
  EXPECT_EQ(error_of([&] { done.wait(); }).code(), ErrorCode::device_error);
  EXPECT_EQ(error_of([&] { done.is_complete(); }).code(), ErrorCode::device_error);
  EXPECT_EQ(read(0), 0) << "the command must not have run";
}

TEST_P(StreamTest, ABlockingReadReportsAFailedCommand) {
  const Stream own(context());
  const Gate gate(context());
  Event done;
  add(own, 0, 1, {gate.list(), &done});
  own.view().flush();
  const BlockingCalls calls;
  std::thread fails_during_read([&] {
    while (calls.names().empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the call is noted as it begins
    gate.set(-9999);
  });
  int value = -1;
  bool told = false;
  try {
    read_blocking(own, element(0).buffer, &value, 4);
  } catch (const Error& error) {
    told = error.code() == ErrorCode::device_error;
  }
  fails_during_read.join();
  EXPECT_EQ(told, device().caps().finish_reports_failures);
}

TEST_P(StreamTest, CountsStopsAndLaunches) {
  ContextCounters& counters = context().counters();
  const std::uint64_t launched = counters.kernels_launched, stops = counters.host_syncs;
  add(stream(), 0, 1);
  add(stream(), 0, 1);
  launch(stream(), {&adding, "", "adding"}, {{1, 0, 1}, {1, 1, 1}}, {}, {}, element(0), 0L, std::int32_t{1});
  EXPECT_EQ(counters.kernels_launched, launched + 2) << "an empty range launches nothing";
  EXPECT_EQ(counters.host_syncs, stops);
  stream().finish();
  EXPECT_EQ(read(0), 3);
  EXPECT_EQ(counters.host_syncs, stops + 2);
}

TEST(EventTest, EmptyMeansComplete) {
  Event event;
  EXPECT_TRUE(event.is_complete());
  event.wait();
  EXPECT_EQ(event.release(), nullptr);
}

}  // namespace
}  // namespace moecl::test
