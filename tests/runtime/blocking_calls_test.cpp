#include "tests/runtime/blocking_calls.hpp"

#include <gmock/gmock.h>

#include "runtime/kernel.hpp"
#include "tests/devices.hpp"

namespace moecl::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ProgramSource idle{"idle", "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void idle(int x) {}"};

class BlockingCallsTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(BlockingCallsTest);

TEST_P(BlockingCallsTest, SeesEveryStopInsideTheLibrary) {
  const StreamView stream = device().stream;
  const Buffer memory(*device().context, 4);
  int value = 7;
  const BlockingCalls calls;
  write_blocking(stream, memory.view(), &value, 4);
  read_blocking(stream, memory.view(), &value, 4);
  const Event event = stream.record();
  event.wait();
  EXPECT_TRUE(event.is_complete());
  stream.finish();
  EXPECT_THAT(calls.names(),
              ElementsAre("clEnqueueWriteBuffer", "clGetEventInfo", "clEnqueueReadBuffer", "clGetEventInfo",
                          "clWaitForEvents", "clGetEventInfo", "clFinish", "clGetEventInfo"));
}

TEST_P(BlockingCallsTest, SeesNoneInAsynchronousWork) {
  const StreamView stream = device().stream;
  const Buffer memory(*device().context, 8), other(*device().context, 8);
  const KernelKey key{&idle, "", "idle"};
  launch(stream, key, {}, {}, {}, 1);  // compiles
  const std::uint64_t value = 7;
  std::uint64_t back = 0;
  const BlockingCalls calls;
  Event done;
  enqueue_fill(stream, other.view(), 1);
  enqueue_write(stream, memory.view(), &value, 8);
  enqueue_copy(stream, memory.view(), other.view());
  launch(stream, key, {}, {}, {"idle", "", "", 0, 0}, 1);
  enqueue_read(stream, other.view(), &back, 8, {{}, &done});
  stream.flush();
  EXPECT_THAT(calls.names(), IsEmpty());
  done.wait();
  EXPECT_EQ(back, 7u);
}

}  // namespace
}  // namespace moecl::test
