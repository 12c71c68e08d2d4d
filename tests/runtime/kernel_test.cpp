#include "runtime/kernel.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

// Two sources with one kernel name, to be told apart.
const ProgramSource plus{"plus", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void apply(__global int* x, ulong first, int value) { x[first] += value; })"};
const ProgramSource times{"times", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void apply(__global int* x, ulong first, int value) { x[first] *= value; })"};
const ProgramSource slow{"slow", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void apply(volatile __global int* x, int steps) {
  for (int i = 0; i < steps; ++i)
    for (int j = 0; j < 4096; ++j) x[get_global_id(0)] += 1;
})"};
const ProgramSource broken{"broken", "__kernel void apply(__global int* x) { x[0] = not_declared_anywhere; }"};

class KernelTest : public OnEveryDevice {
 protected:
  KernelTest() {
    ContextOptions options;
    options.disk_cache = false;
    context_ = Context::create(device().context->devices(), options);
    stream_ = Stream(*context_);
    memory_ = Buffer(*context_, 64);
    probes_ = context_->counters().programs_built;
  }
  TensorView element(std::uint64_t i = 0) const { return {memory_.view().slice(4 * i, 4), DType::i32, {1}}; }
  void apply(StreamView stream, const ProgramSource& source, std::uint64_t i, std::int32_t value) const {
    launch(stream, {&source, "", "apply"}, {}, {}, {}, element(i), first_element(element(i)), value);
  }
  std::uint64_t programs_built() const { return context_->counters().programs_built - probes_; }
  std::unique_ptr<Context> context_;
  Stream stream_;
  Buffer memory_;
  std::uint64_t probes_ = 0;  ///< programs built to probe the driver
};
MOECL_ON_EVERY_DEVICE(KernelTest);

TEST_P(KernelTest, TellsSourcesWithOneKernelNameApart) {
  enqueue_fill(stream_, memory_.view(), 3);
  apply(stream_, plus, 0, 4);
  apply(stream_, times, 0, 5);
  int value = 0;
  read_blocking(stream_, element().buffer, &value, 4);
  EXPECT_EQ(value, 35);
}

TEST_P(KernelTest, SaysWhatDoesNotBuildAndWhere) {
  const Error error = error_of([&] { launch(stream_, {&broken, "-DX=1", "apply"}, {}, {}, {}, std::int32_t{1}); });
  EXPECT_EQ(error.code(), ErrorCode::build_failed);
  for (const std::string& part :
       {std::string("broken"), std::string("-DX=1"), device().caps().name, std::string("not_declared_anywhere")})
    EXPECT_THAT(error.what(), HasSubstr(part));
  EXPECT_EQ(programs_built(), 0u);
  apply(stream_, plus, 0, 1);  // the context still works
  stream_.finish();
}

TEST_P(KernelTest, ChecksTheArityBeforeAnythingIsEnqueued) {
  const Error few = error_of([&] { launch(stream_, {&plus, "", "apply"}, {}, {}, {}, element(), 1L); });
  EXPECT_EQ(few.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(few.what(), HasSubstr("2 arguments set, it takes 3"));
  EXPECT_EQ(error_of([&] {
              launch(stream_, {&plus, "", "apply"}, {}, {}, {}, element(), 0L, 1, 2);
            }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(context_->counters().kernels_launched, 0u);
  EXPECT_THAT(error_of([&] {
                launch(stream_, {&plus, "", "missing"}, {}, {}, {}, 1);
              }).what(),
              HasSubstr("missing in program plus"));
}

TEST_P(KernelTest, BuildsEachProgramOnceForManyThreads) {
  constexpr int threads = 4, rounds = 20;
  enqueue_fill(stream_, memory_.view(), 0);
  stream_.finish();
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      const Stream own(*context_);
      const auto i = static_cast<std::uint64_t>(t);
      for (int round = 0; round < rounds; ++round) {
        apply(own, t % 2 == 0 ? plus : times, i, 2);
        apply(own, plus, i, 1);
        apply(own, times, i, 1);
      }
      own.finish();
    });
  for (std::thread& thread : pool) thread.join();
  std::array<std::int32_t, threads> values{};
  read_blocking(stream_, memory_.view(), values.data(), sizeof(values));
  std::uint32_t doubled = 0;
  for (int round = 0; round < rounds; ++round) doubled = 2 * doubled + 1;
  const auto odd = static_cast<std::int32_t>(doubled);
  EXPECT_THAT(values, ::testing::ElementsAre(3 * rounds, odd, 3 * rounds, odd));
  EXPECT_EQ(programs_built(), 2u);
  EXPECT_EQ(context_->counters().kernels_launched, std::uint64_t{threads} * rounds * 3);
}

// The wider launch is the first of its width. It begins last and ends last. PoCL before 6.0 aborts unless it tells the
// code of the two contexts apart.
TEST_P(KernelTest, LaunchesOfTwoContextsDifferInWidth) {
  const std::unique_ptr<Context> other = Context::create(device().context->devices());
  Stream others(*other);
  const Buffer memory(*other, 64);
  enqueue_fill(stream_, memory_.view(), 0);
  enqueue_fill(others, memory.view(), 0);
  const auto count = [](StreamView stream, const Buffer& x, std::size_t width, std::int32_t steps) {
    launch(stream, {&slow, "", "apply"}, {{width, 1, 1}, {1, 1, 1}}, {}, {}, TensorView{x.view(), DType::i32, {2}},
           steps);
  };
  for (const auto& [stream, x] :
       {std::pair<Stream*, const Buffer*>(&stream_, &memory_), std::pair<Stream*, const Buffer*>(&others, &memory)}) {
    count(*stream, *x, 1, 1);
    stream->finish();
  }
  constexpr std::int32_t steps = 1 << 10;
  count(stream_, memory_, 1, steps);
  StreamView(stream_).flush();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  count(others, memory, 2, 2 * steps);
  others.finish();
  stream_.finish();
  std::array<std::int32_t, 2> values{};
  read_blocking(others, memory.view(), values.data(), sizeof(values));
  EXPECT_THAT(values, ::testing::Each(::testing::Gt(0)));  // llvmpipe leaves a loop after 65535 rounds
}

TEST_P(KernelTest, PrintsNothing) {
  apply(stream_, plus, 0, 1);  // a driver may print while it compiles
  stream_.finish();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) apply(stream_, plus, 0, 1);
  error_of([&] { launch(stream_, {&plus, "", "apply"}, {}, {}, {}, 1); });
  context_->log(LogLevel::error, "nobody listens");
  stream_.finish();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(DeviceTest, ListsWhatWasFoundWhenNothingMatches) {
  const Error error = error_of([] { select_devices("no such platform", "nor device"); });
  EXPECT_EQ(error.code(), ErrorCode::no_device);
  for (const DeviceReport& report : enumerate_devices()) {
    EXPECT_THAT(error.what(), HasSubstr(report.device.caps.platform_name));
    EXPECT_THAT(error.what(),
                HasSubstr(report.refused.empty() ? report.device.caps.name + ": usable" : report.refused));
  }
  const DeviceCaps& caps = devices().front()->caps();
  EXPECT_EQ(select_devices(caps.platform_name, caps.name).front().caps.name, caps.name);
}

}  // namespace
}  // namespace moecl::test
