#include <moecl/opencl.hpp>
#include <moecl/trace.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cmath>
#include <thread>

#include "runtime/kernel.hpp"
#include "runtime/trace_record.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const ProgramSource counting{"counting", R"(
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void counting(__global int* x, int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; ++i) sum += i ^ (sum << 1);
  x[get_global_id(0)] = sum;
})"};

/// A complete event, in whole nanoseconds.
struct Complete {
  std::string name, category;
  std::int64_t begin_ns, end_ns;
  Json args;
};

using Track = std::pair<int, int>;  // pid, tid

struct Parsed {
  Json file;
  std::map<Track, std::vector<Complete>> tracks;
  std::map<Track, std::string> names;  // tid 0: the process

  explicit Parsed(const std::string& path) : file(Json::parse(read_text(path))) {
    for (const Json& event : file.at("traceEvents")) {
      const Track track{event.at("pid"), event.at("tid")};
      const auto ns = [&](const char* key) { return std::llround(event.at(key).get<double>() * 1e3); };
      if (event.at("ph") == "M") names[track] = event.at("args").at("name");
      if (event.at("ph") == "X")
        tracks[track].push_back({event.at("name"), event.at("cat"), ns("ts"), ns("ts") + ns("dur"), event.at("args")});
    }
  }
  std::vector<Complete> of(const std::string& category) const {
    std::vector<Complete> found;
    for (const auto& [track, events] : tracks)
      std::copy_if(events.begin(), events.end(), std::back_inserter(found),
                   [&](const Complete& e) { return e.category == category; });
    return found;
  }
};

class TraceTest : public OnEveryDevice {
 protected:
  TraceTest() {
    ContextOptions options;
    options.trace = true;
    options.log_level = LogLevel::warning;
    options.log = [this](LogLevel, std::string_view line) { log_.append(line).append("\n"); };
    context_ = Context::create(device().context->devices(), options);
    memory_ = Buffer(*context_, 64);
  }
  void count(StreamView stream, const char* variant = "", Submit submit = {}) {
    launch(stream, {&counting, "", "counting"}, {{16, 1, 1}, {1, 1, 1}}, submit,
           {"count", variant, "i32[16]", 64, 1000}, TensorView(memory_.view(), DType::i32, {16}), std::int32_t{100000});
  }
  Parsed written() {
    context_->trace()->write_chrome_json(dir_.file("trace.json"));
    return Parsed(dir_.file("trace.json"));
  }

  const TempDir dir_;
  std::string log_;
  std::unique_ptr<Context> context_;
  Buffer memory_;
};
MOECL_ON_EVERY_DEVICE(TraceTest);

TEST_P(TraceTest, HoldsEveryCommandWithItsFacts) {
  const Stream stream(*context_);
  std::array<int, 16> values{};
  {
    const Trace::Span span(context_->trace(), "forward");
    enqueue_write(stream, memory_.view(), values.data(), 64);
    for (int i = 0; i < 5; ++i) count(stream, "fast");
    enqueue_fill(stream, memory_.view(), 1);
  }
  read_blocking(stream, memory_.view(), values.data(), 64);
  const Parsed trace = written();
  const std::vector<Complete> kernels = trace.of("kernel"), transfers = trace.of("transfer");
  EXPECT_EQ(kernels.size(), context_->counters().kernels_launched);
  EXPECT_EQ(kernels.size(), 5u);
  for (const Complete& kernel : kernels) {
    EXPECT_EQ(kernel.name, "count");
    EXPECT_EQ(kernel.args, (Json{{"variant", "fast"}, {"shape", "i32[16]"}, {"bytes", 64}, {"flops", 1000}}));
    EXPECT_GE(kernel.end_ns, kernel.begin_ns + (device().caps().event_times_usable ? 1 : 0));
  }
  ASSERT_EQ(transfers.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(transfers[i].name, (std::array{"write", "fill", "read"})[i]);
    EXPECT_EQ(transfers[i].args.at("bytes"), 64);
  }
  ASSERT_EQ(trace.of("span").size(), 1u);
  EXPECT_EQ(trace.of("span")[0].name, "forward");
  EXPECT_EQ(trace.of("enqueue").size(), 8u);
  EXPECT_EQ(trace.names.at({1, 0}), "host");
  EXPECT_EQ(trace.names.at({2, 0}), device().caps().name);
  EXPECT_THAT(trace.names.at({2, 1}), HasSubstr("queue 1"));
  EXPECT_THAT(trace.file.at("otherData").at("producer").get<std::string>(), HasSubstr("moecl"));
}

TEST_P(TraceTest, KeepsCommandsOfAQueueApartAndHostSpansNested) {
  const Stream first(*context_), second(*context_);
  const auto work = [&](const Stream& stream) {
    const Trace::Span outer(context_->trace(), "outer");
    for (int i = 0; i < 4; ++i) {
      const Trace::Span inner(context_->trace(), "inner");
      count(stream);
    }
    stream.finish();
  };
  std::thread other([&] { work(second); });
  work(first);
  other.join();
  const Parsed trace = written();
  EXPECT_EQ(trace.tracks.size(), 4u);  // two queues, two threads
  for (const auto& [track, events] : trace.tracks) {
    std::vector<const Complete*> open;
    std::int64_t last_begin = std::numeric_limits<std::int64_t>::min();
    for (const Complete& event : events) {
      EXPECT_GE(event.begin_ns, last_begin) << "in order of time";
      last_begin = event.begin_ns;
      while (!open.empty() && open.back()->end_ns <= event.begin_ns) open.pop_back();
      if (!open.empty()) {
        EXPECT_EQ(track.first, 1) << event.name << " overlaps another command of its queue";
        EXPECT_LE(event.end_ns, open.back()->end_ns) << event.name << " leaves the span it began in";
      }
      open.push_back(&event);
    }
  }
}

/// Device times on the host's clock: a command runs after the host began to enqueue it and before the host saw its end.
TEST_P(TraceTest, PutsDeviceTimesOnTheHostsClock) {
  const Stream stream(*context_);
  for (int i = 0; i < 5; ++i) {
    const Trace::Span span(context_->trace(), "enqueue to finish");
    count(stream);
    stream.finish();
  }
  const Parsed trace = written();
  const std::vector<Complete> spans = trace.of("span"), kernels = trace.of("kernel"), calls = trace.of("enqueue");
  ASSERT_EQ(spans.size(), 5u);
  ASSERT_EQ(kernels.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_GE(kernels[i].begin_ns, calls[i].begin_ns);
    if (device().caps().event_times_usable) {  // a driver may report an end later than it lets finish return
      EXPECT_LE(kernels[i].end_ns, spans[i].end_ns);
    }
  }
}

TEST_P(TraceTest, PointsFromTheEnqueueToTheCommand) {
  const Stream stream(*context_);
  count(stream);
  count(stream);
  const Parsed trace = written();
  const std::vector<Complete> kernels = trace.of("kernel"), calls = trace.of("enqueue");
  for (const Json& event : trace.file.at("traceEvents")) {
    if (event.at("ph") != "s" && event.at("ph") != "f") continue;
    const bool start = event.at("ph") == "s";
    const Complete& bound = (start ? calls : kernels).at(event.at("id").get<std::size_t>() - 1);
    EXPECT_EQ(event.at("pid"), start ? 1 : 2);
    EXPECT_EQ(std::llround(event.at("ts").get<double>() * 1e3), bound.begin_ns);
  }
}

TEST_P(TraceTest, FallsBackToHostTimesAndSaysSo) {
  cl_int status = CL_SUCCESS;
  const cl_device_id device_handle = context_->devices()[0].handle;
  const cl_command_queue queue = clCreateCommandQueue(context_->handle(), device_handle, 0, &status);
  ASSERT_EQ(status, CL_SUCCESS);
  const cl_command_queue another = clCreateCommandQueue(context_->handle(), device_handle, 0, &status);
  ASSERT_EQ(status, CL_SUCCESS);
  {
    const Stream stream = Stream::borrow(*context_, queue);
    count(stream);
    count(stream);
    stream.finish();
    const Parsed trace = written();
    EXPECT_EQ(trace.of("kernel").size(), 2u);
    // A driver may report several completions at once. Only both kernels together have a length for sure.
    EXPECT_GT(trace.of("kernel")[1].end_ns, trace.of("kernel")[0].begin_ns);
    EXPECT_THAT(trace.names.at({2, 1}), HasSubstr("host times"));
    const char* reason = device().caps().event_times_usable ? "without profiling" : "no durations";
    EXPECT_THAT(trace.file.at("otherData").at("host_times").at("queue 1").get<std::string>(), HasSubstr(reason));
    EXPECT_THAT(log_, HasSubstr(reason));
    const Stream same_device = Stream::borrow(*context_, another);
    count(same_device);
    same_device.finish();
    EXPECT_THAT(written().file.at("otherData").at("host_times").at("queue 2").get<std::string>(), HasSubstr(reason));
    EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;  // once a device
  }
  clReleaseCommandQueue(another);
  clReleaseCommandQueue(queue);
}

TEST_P(TraceTest, ShowsAFailedCommand) {
  const Stream stream(*context_);
  cl_int status = CL_SUCCESS;
  const cl_event gate = clCreateUserEvent(context_->handle(), &status);
  ASSERT_EQ(status, CL_SUCCESS);
  count(stream, "", {{&gate, 1}, nullptr});
  stream.view().flush();
  clSetUserEventStatus(gate, -5);
  const Parsed trace = written();
  ASSERT_EQ(trace.of("kernel").size(), 1u);
  EXPECT_THAT(trace.of("kernel")[0].args.at("failed").get<std::string>(), HasSubstr("CL_"));
  clReleaseEvent(gate);
}

/// Readers wait for a command. Its gate opens only after another thread has recorded spans, as in a staged copy.
TEST_P(TraceTest, RecordsWhileReadersWait) {
  const Stream stream(*context_);
  cl_int status = CL_SUCCESS;
  const cl_event gate = clCreateUserEvent(context_->handle(), &status);
  ASSERT_EQ(status, CL_SUCCESS);
  count(stream, "", {{&gate, 1}, nullptr});
  stream.view().flush();
  std::atomic<int> reading{0};
  std::array<double, 2> total_us{};
  std::vector<std::thread> readers;
  for (double& total : total_us)
    readers.emplace_back([&] {
      ++reading;
      for (const WorkSummary& row : context_->trace()->summary()) total += row.total_us;
    });
  while (reading != 2) std::this_thread::yield();
  for (int i = 0; i < 20000; ++i) const Trace::Span span(context_->trace(), "before the gate opens");
  clSetUserEventStatus(gate, CL_COMPLETE);
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(total_us[0], 0);
  EXPECT_EQ(total_us[0], total_us[1]);
  clReleaseEvent(gate);
}

TEST_P(TraceTest, SumsUpByNameAndVariant) {
  const Stream stream(*context_);
  for (const char* variant : {"a", "b", "a"}) count(stream, variant);
  enqueue_fill(stream, memory_.view(), 1);
  stream.finish();
  std::map<std::string, std::uint64_t> counts;
  double total_us = 0, longest_us = std::numeric_limits<double>::infinity();
  for (const WorkSummary& row : context_->trace()->summary()) {
    counts[row.name + "/" + row.variant] = row.count;
    EXPECT_EQ(row.kind, row.name == "fill" ? WorkKind::transfer : WorkKind::kernel);
    EXPECT_LE(row.total_us, longest_us) << "longest first";
    longest_us = row.total_us;
    total_us += row.total_us;
  }
  EXPECT_EQ(counts, (std::map<std::string, std::uint64_t>{{"count/a", 2}, {"count/b", 1}, {"fill/", 1}}));
  EXPECT_GT(total_us, 0);
  context_->trace()->clear();
  EXPECT_TRUE(context_->trace()->summary().empty());
  EXPECT_TRUE(written().tracks.empty());
}

TEST_P(TraceTest, WritesTheWholeFileOrNone) {
  const Stream stream(*context_);
  count(stream);
  EXPECT_EQ(error_of([&] { context_->trace()->write_chrome_json(dir_.file("missing/trace.json")); }).code(),
            ErrorCode::io_error);
  EXPECT_EQ(error_of([&] { context_->trace()->write_chrome_json(dir_.path()); }).code(), ErrorCode::io_error);
  EXPECT_EQ(dir_.entries(), 0u);
  written();
  written();
  EXPECT_EQ(dir_.entries(), 1u);
}

/// A driver that reports several completions at once gives the earlier ones no length.
TEST(ChromeTraceTest, AnEventWithoutLengthStandsBeforeWhatBeginsAtItsEnd) {
  std::vector<TracedCommand> commands(3);
  const std::int64_t times[][2] = {{0, 10}, {10, 10}, {10, 20}};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    commands[i].name = std::to_string(i);
    commands[i].start_ns = times[i][0], commands[i].end_ns = times[i][1];
  }
  const TempDir dir;
  write_chrome_trace(dir.file("trace.json"), 0, {TracedDevice{nullptr, "device", 0}}, {TracedQueue{nullptr, 0, ""}},
                     commands, {});
  const Parsed trace(dir.file("trace.json"));
  std::string order;
  for (const Complete& event : trace.tracks.at({2, 1})) order += event.name;
  EXPECT_EQ(order, "012");
}

}  // namespace
}  // namespace moecl::test
