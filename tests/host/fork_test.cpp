// Every call fails in the child of a fork(), because the driver's threads stayed in the parent.
#include <moecl/communicator.hpp>
#include <moecl/device.hpp>
#include <moecl/trace.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/host/c_golden.hpp"

namespace moecl::test {
namespace {

/// What `body` returns in a child of fork(). A child that hangs is killed.
template <class Body>
int status_in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class ForkTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(ForkTest);

TEST_P(ForkTest, EveryCallOfTheCInterfaceFailsInTheChild) {
  ContextHandle context;
  StreamHandle stream;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, stream.out()));
  ASSERT_OK(moecl_layer_load(stream, golden_dir(golden_name).c_str(), -1, nullptr, layer.out()));
  std::uint64_t needed = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(layer, 1, &needed));
  const Buffer x(*device().context, 96 * 4), out(*device().context, 96 * 4), workspace(*device().context, needed);
  auto args = sized<moecl_forward_args>();
  args.tokens = 1;
  args.x.memory = x.handle();
  args.out.memory = out.handle();
  args.workspace.memory = workspace.handle();
  const auto forward = [&] { return moecl_layer_forward(layer, stream, &args, 0, nullptr, nullptr); };
  ASSERT_OK(forward());
  int32_t count = 0;
  moecl_context* another = nullptr;
  EXPECT_EQ(status_in_child(forward), MOECL_UNSUPPORTED);
  EXPECT_EQ(status_in_child([&] { return moecl_stream_finish(stream); }), MOECL_UNSUPPORTED);
  EXPECT_EQ(status_in_child([&] { return moecl_device_count(&count); }), MOECL_UNSUPPORTED);
  EXPECT_EQ(status_in_child([&] { return moecl_context_create(0, nullptr, &another); }), MOECL_UNSUPPORTED);
  EXPECT_EQ(status_in_child([&] { return moecl_context_destroy(context); }), MOECL_UNSUPPORTED);
  ASSERT_OK(forward());
  ASSERT_OK(moecl_stream_finish(stream));
}

TEST_P(ForkTest, WhateverEnqueuesOrWaitsFailsInTheChild) {
  const Buffer memory(*device().context, 64);
  const StreamView stream = device().stream;
  Trace trace;
  StreamView traced = stream;
  traced.trace = &trace;
  Event done;
  enqueue_fill(traced, memory.view(), 0, {{}, &done});
  const auto refused = [](auto body) {
    return status_in_child([&] {
      try {
        body();
      } catch (const Error& error) {
        const bool said = std::string(error.what()).find("lacks the driver's threads") != std::string::npos;
        return error.code() == ErrorCode::unsupported && said ? 1 : 2;
      }
      return 0;
    });
  };
  EXPECT_EQ(refused([&] { enqueue_fill(stream, memory.view(), 0); }), 1);
  EXPECT_EQ(refused([&] { stream.finish(); }), 1);
  EXPECT_EQ(refused([&] { stream.record(); }), 1);
  EXPECT_EQ(refused([&] { Buffer(*device().context, 64); }), 1);
  EXPECT_EQ(refused([] { select_devices(); }), 1);
  EXPECT_EQ(refused([&] { done.wait(); }), 1);
  EXPECT_EQ(refused([&] { Stream(*device().context); }), 1);
  EXPECT_EQ(refused([&] { Stream::borrow(*device().context, stream.queue); }), 1);
  EXPECT_EQ(refused([&] { Stream::beside(stream); }), 1);
  EXPECT_EQ(refused([&] { trace.summary(); }), 1);
  EXPECT_EQ(refused([&] { trace.write_chrome_json("/dev/null"); }), 1);
  EXPECT_EQ(refused([&] { RankGroup({stream, stream}); }), 1);
}

/// A program started by posix_spawn, or by exec after fork or vfork, can use OpenCL.
TEST(ForkExecTest, AProgramOfItsOwnUsesOpenCl) {
  devices();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    execl("/proc/self/exe", "moecl_tests", "--source=runtime/buffer_test.cpp", "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace moecl::test
