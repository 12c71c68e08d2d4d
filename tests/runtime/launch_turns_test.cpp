#include "runtime/launch_turns.hpp"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <chrono>
#include <thread>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class LaunchTurnsTest : public OnEveryDevice {
 protected:
  /// A user event in place of a launch. The launch ends when the event's status is set.
  cl_event launch() {
    cl_int status = CL_SUCCESS;
    cl_event event = clCreateUserEvent(device().context->handle(), &status);
    EXPECT_EQ(status, CL_SUCCESS);
    turns_.next() = Event(event);
    return event;
  }
  static void end(cl_event event, cl_int status) { EXPECT_EQ(clSetUserEventStatus(event, status), CL_SUCCESS); }

  /// What the next launch waits for, once the driver has reported all ends. It may report from its own thread.
  cl_event before(cl_event expected) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    cl_event last = turns_.before();
    while (last != expected && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      last = turns_.before();
    }
    return last;
  }

  LaunchTurns turns_;
};
MOECL_ON_EVERY_DEVICE(LaunchTurnsTest);

TEST_P(LaunchTurnsTest, TheNextWaitsForTheLastInFlight) {
  EXPECT_EQ(turns_.before(), nullptr);
  cl_event first = launch();
  EXPECT_EQ(turns_.before(), first);
  cl_event second = launch();
  EXPECT_EQ(turns_.before(), second);
  end(first, CL_COMPLETE);
  EXPECT_EQ(turns_.before(), second);
  end(second, CL_COMPLETE);
  EXPECT_EQ(before(nullptr), nullptr);
}

TEST_P(LaunchTurnsTest, WhatAFailedLaunchWaitedForMayStillBeInFlight) {
  cl_event running = launch(), failed = launch();
  end(failed, CL_OUT_OF_RESOURCES);
  EXPECT_EQ(before(running), running);
  end(running, CL_COMPLETE);
  EXPECT_EQ(before(nullptr), nullptr);
}

TEST_P(LaunchTurnsTest, ALaunchThatWasRefusedIsNoneInFlight) {
  cl_event running = launch();
  turns_.next();  // gets no event
  EXPECT_EQ(turns_.before(), running);
  end(running, CL_COMPLETE);
}

}  // namespace
}  // namespace moecl::test
