#include "tests/host/c_api.hpp"

#include <chrono>
#include <set>
#include <thread>

#include "runtime/cache_folder.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using testing::MatchesRegex;

class CApiTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(CApiTest);

cl_uint references(cl_context context) {
  cl_uint count = 0;
  EXPECT_EQ(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(count), &count, nullptr), CL_SUCCESS);
  return count;
}

cl_uint references(cl_command_queue queue) {
  cl_uint count = 0;
  EXPECT_EQ(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof(count), &count, nullptr), CL_SUCCESS);
  return count;
}

/// The reference count once it is `expected`, or after a second: a driver's thread may still hold the last command,
/// which has ended, and with it the queue.
template <class Handle>
cl_uint references_at_last(Handle handle, cl_uint expected) {
  for (int i = 0; i < 1000 && references(handle) != expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return references(handle);
}

TEST(CApi, NamesItsVersionAndEveryStatus) {
  EXPECT_EQ(moecl_version(), std::to_string(MOECL_VERSION_MAJOR) + "." + std::to_string(MOECL_VERSION_MINOR) + "." +
                                 std::to_string(MOECL_VERSION_PATCH));
  EXPECT_THAT(moecl_commit(), MatchesRegex("unknown|[0-9a-f]{12,}\\+?"));
  std::set<std::string> names;
  for (int status = MOECL_OK; status <= MOECL_INTERNAL_ERROR; ++status)
    names.insert(moecl_status_name(static_cast<moecl_status>(status)));
  EXPECT_EQ(names.size(), 11U);
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(moecl_status_name(MOECL_OK), "ok");
  EXPECT_STREQ(moecl_status_name(MOECL_BUILD_FAILED), "build_failed");
  EXPECT_STREQ(moecl_status_name(static_cast<moecl_status>(15)), "unknown");
}

TEST(CApi, DescribesEveryDevice) {
  int32_t count = 0;
  ASSERT_OK(moecl_device_count(&count));
  const std::vector<DeviceReport> devices = enumerate_devices();
  ASSERT_EQ(count, static_cast<int32_t>(devices.size()));
  for (int32_t i = 0; i < count; ++i) {
    const DeviceReport& expected = devices[static_cast<std::size_t>(i)];
    auto info = sized<moecl_device_info>();
    ASSERT_OK(moecl_device_describe(i, &info));
    EXPECT_EQ(info.device, expected.device.handle);
    EXPECT_EQ(info.platform, expected.device.platform);
    EXPECT_EQ(info.platform_name, expected.device.caps.platform_name);
    EXPECT_EQ(info.name, expected.device.caps.name.substr(0, sizeof(info.name) - 1));
    EXPECT_EQ(info.driver_version, expected.device.caps.driver_version);
    EXPECT_EQ(info.refused, expected.refused);
    EXPECT_EQ(info.max_alloc_bytes, expected.device.caps.max_alloc_bytes);
  }
  auto info = sized<moecl_device_info>();
  for (const int32_t index : {-1, count})
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "there are " + std::to_string(count), moecl_device_describe(index, &info));
  ContextHandle context;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "device 99", moecl_context_create(99, nullptr, context.out()));
  EXPECT_FAILS(MOECL_NO_DEVICE, "no-such-platform",
               moecl_context_create_matching("no-such-platform", nullptr, nullptr, context.out()));
  EXPECT_EQ(context, nullptr) << "a failed call wrote its result";
}

TEST(CApi, FillsAnOlderStructNoFurtherThanItReaches) {
  auto info = sized<moecl_device_info>();
  info.size_bytes = offsetof(moecl_device_info, global_mem_bytes);
  info.global_mem_bytes = 4711;
  ASSERT_OK(moecl_device_describe(0, &info));
  EXPECT_NE(info.platform, nullptr);
  EXPECT_EQ(info.global_mem_bytes, 4711U);
  EXPECT_EQ(info.size_bytes, offsetof(moecl_device_info, global_mem_bytes));
}

TEST(CApi, ZeroesWhatANewerStructHasBeyond) {
  struct {
    moecl_device_info info;
    std::uint64_t newer;
  } larger{sized<moecl_device_info>(), 4711};
  larger.info.size_bytes = sizeof(larger);
  ASSERT_OK(moecl_device_describe(0, &larger.info));
  EXPECT_NE(larger.info.platform, nullptr);
  EXPECT_EQ(larger.newer, 0U);
}

TEST(CApi, RefusesNullPointers) {
  const auto null = [](moecl_status status) {
    EXPECT_EQ(status, MOECL_INVALID_ARGUMENT);
    EXPECT_THAT(moecl_last_error_message(), MatchesRegex(".*null.*"));
  };
  ContextHandle context;
  ASSERT_OK(moecl_context_create_matching(nullptr, nullptr, nullptr, context.out()));
  StreamHandle stream;
  _cl_context* cl_context = nullptr;
  _cl_command_queue* cl_queue = nullptr;
  null(moecl_device_count(nullptr));
  null(moecl_device_describe(0, nullptr));
  null(moecl_context_create(0, nullptr, nullptr));
  null(moecl_context_create_matching("", "", nullptr, nullptr));
  null(moecl_context_wrap(nullptr, nullptr, context.out()));
  null(moecl_context_native(nullptr, &cl_context));
  null(moecl_context_native(context, nullptr));
  null(moecl_trace_write(nullptr, "trace.json"));
  null(moecl_stream_create(nullptr, 0, stream.out()));
  null(moecl_stream_create(context, 0, nullptr));
  null(moecl_stream_wrap(nullptr, nullptr, stream.out()));
  null(moecl_stream_wrap(context, nullptr, stream.out()));
  null(moecl_stream_native(nullptr, &cl_queue));
  null(moecl_stream_finish(nullptr));
  EXPECT_EQ(moecl_context_destroy(nullptr), MOECL_OK);
  EXPECT_EQ(moecl_stream_destroy(nullptr), MOECL_OK);
}

TEST(CApi, ReadsStructsOfOtherVersions) {
  struct {
    moecl_context_options options;
    std::uint64_t newer;
  } larger{};
  ContextHandle context;
  const auto create = [&](std::uint64_t size_bytes) {
    context.reset();
    larger.options.size_bytes = size_bytes;
    return moecl_context_create_matching(nullptr, nullptr, &larger.options, context.out());
  };
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "size_bytes is 0", create(0));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "size_bytes 13", create(13));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "size_bytes 18446744073709551608", create(~std::uint64_t{7}));
  EXPECT_EQ(create(sizeof(larger)), MOECL_OK) << "fields of a newer version, all at their default";
  larger.newer = 1;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "is set", create(sizeof(larger)));

  larger.options.trace = MOECL_ON;
  EXPECT_EQ(create(sizeof(larger.options)), MOECL_OK);
  const TempDir dir;
  EXPECT_EQ(moecl_trace_write(context, dir.file("trace.json").c_str()), MOECL_OK);
  EXPECT_EQ(create(offsetof(moecl_context_options, cache_dir)), MOECL_OK);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "without", moecl_trace_write(context, dir.file("other.json").c_str()));
  larger.options.trace = 3;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.trace: 3", create(sizeof(larger.options)));
  larger.options = {};
  larger.options.log_level = 6;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.log_level: 6", create(sizeof(larger.options)));
  larger.options = {};
  larger.options.disk_cache = -1;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.disk_cache: -1", create(sizeof(larger.options)));
}

TEST_P(CApiTest, RetainsWhatItWrapsAndReleasesItOnce) {
  const CallersQueue mine(device());
  const cl_uint contexts = references(mine.context), queues = references(mine.queue);
  for (const bool stream_first : {true, false}) {
    ContextHandle context;
    StreamHandle stream;
    ASSERT_OK(moecl_context_wrap(mine.context, nullptr, context.out()));
    EXPECT_EQ(references(mine.context), contexts + 1);
    ASSERT_OK(moecl_stream_wrap(context, mine.queue, stream.out()));
    EXPECT_EQ(references(mine.queue), queues + 1);
    cl_context same_context = nullptr;
    cl_command_queue same_queue = nullptr;
    ASSERT_OK(moecl_context_native(context, &same_context));
    ASSERT_OK(moecl_stream_native(stream, &same_queue));
    EXPECT_EQ(same_context, mine.context);
    EXPECT_EQ(same_queue, mine.queue);
    if (stream_first) stream.reset();
    context.reset();
    if (!stream_first) {
      EXPECT_EQ(moecl_stream_finish(stream), MOECL_OK) << "a stream keeps its context";
    }
    stream.reset();
    EXPECT_EQ(references_at_last(mine.context, contexts), contexts);
    EXPECT_EQ(references_at_last(mine.queue, queues), queues);
  }
}

TEST_P(CApiTest, RefusesQueuesItCannotUse) {
  const CallersQueue mine(device()), other(device());
  ContextHandle context;
  StreamHandle stream;
  ASSERT_OK(moecl_context_wrap(mine.context, nullptr, context.out()));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "another cl_context", moecl_stream_wrap(context, other.queue, stream.out()));
  for (const int32_t index : {-1, 1})
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "device index", moecl_stream_create(context, index, stream.out()));

  cl_device_id handle = device().context->devices().front().handle;
  cl_command_queue_properties offered = 0;
  clGetDeviceInfo(handle, CL_DEVICE_QUEUE_PROPERTIES, sizeof(offered), &offered, nullptr);
  if ((offered & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0) return;  // such queues cannot be made there
  cl_command_queue unordered =
      clCreateCommandQueue(mine.context, handle, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, nullptr);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "out-of-order", moecl_stream_wrap(context, unordered, stream.out()));
  clReleaseCommandQueue(unordered);
}

TEST(CApi, KeepsErrorsPerThread) {
  EXPECT_NE(moecl_device_count(nullptr), MOECL_OK);
  const std::string mine = moecl_last_error_message();
  std::thread([] {
    EXPECT_STREQ(moecl_last_error_message(), "");
    EXPECT_NE(moecl_stream_finish(nullptr), MOECL_OK);
    EXPECT_STRNE(moecl_last_error_message(), "");
  }).join();
  EXPECT_EQ(moecl_last_error_message(), mine);
}

/// What is kept of an application that ends without destroying its context.
TEST_P(CApiTest, SavesProgramsWhenAsked) {
  const TempDir dir;
  const std::string folder = dir.file("cl");
  auto options = sized<moecl_context_options>();
  options.cache_dir = folder.c_str();
  options.disk_cache = MOECL_ON;
  options.compile = MOECL_COMPILE_IN_PROCESS;  // programs that a helper compiles are kept at once
  ContextHandle context;
  StreamHandle stream;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), &options, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, stream.out()));
  ASSERT_OK(moecl_layer_load(stream, golden_dir(golden_name).c_str(), -1, nullptr, layer.out()));
  const std::size_t before = CacheFolder(folder).entries().size();
  ASSERT_OK(moecl_context_save_programs(context));
  auto info = sized<moecl_context_info>();
  ASSERT_OK(moecl_context_describe(context, &info));
  EXPECT_GT(info.programs_built, 0u);
  EXPECT_EQ(CacheFolder(folder).entries().size(), before + info.programs_built);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "context: the pointer is null", moecl_context_save_programs(nullptr));
  options.compile = 3;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.compile: 3 is not in [0, 2]",
               moecl_context_wrap(device().context->handle(), &options, context.out()));
}

TEST_P(CApiTest, CompilesALayerBeforeItsFirstPass) {
  ContextHandle context;
  StreamHandle stream;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, stream.out()));
  ASSERT_OK(moecl_layer_load(stream, golden_dir(golden_name).c_str(), -1, nullptr, layer.out()));
  auto loaded = sized<moecl_context_info>(), compiled = sized<moecl_context_info>();
  ASSERT_OK(moecl_context_describe(context, &loaded));
  ASSERT_OK(moecl_layer_compile(layer, stream, 20));
  ASSERT_OK(moecl_context_describe(context, &compiled));
  EXPECT_GT(compiled.programs_built + compiled.programs_from_disk, loaded.programs_built + loaded.programs_from_disk);
  EXPECT_EQ(compiled.kernels_launched, loaded.kernels_launched);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "compile: -1 tokens", moecl_layer_compile(layer, stream, -1));
}

TEST_P(CApiTest, ExpertsComeBeforeTheirPass) {
  const std::string model = "qwen2-moe-e16k4";
  CallersQueue own(device());
  ContextHandle context;
  StreamHandle stream, beside;
  LayerHandle layer;
  ASSERT_OK(moecl_context_wrap(own.context, nullptr, context.out()));
  ASSERT_OK(moecl_stream_create(context, 0, stream.out()));
  ASSERT_OK(moecl_stream_create(context, 0, beside.out()));
  auto options = sized<moecl_layer_options>();
  options.memory_budget_percent = 50;
  ASSERT_OK(moecl_layer_load(stream, golden_dir(model).c_str(), -1, &options, layer.out()));
  auto info = sized<moecl_layer_info>();
  ASSERT_OK(moecl_layer_describe(layer, &info));
  std::uint64_t needed = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(layer, 1, &needed));
  const std::vector<double> input = golden_values(model, "hidden_states");
  std::vector<float> x(input.begin(), input.begin() + info.hidden), out(x.size());
  const auto memory = [&](std::size_t bytes, void* from) {
    return clCreateBuffer(own.context, CL_MEM_READ_WRITE | (from != nullptr ? CL_MEM_COPY_HOST_PTR : 0), bytes, from,
                          nullptr);
  };
  cl_mem held[] = {memory(x.size() * sizeof(float), x.data()), memory(x.size() * sizeof(float), nullptr),
                   memory(needed, nullptr), memory(needed, nullptr)};
  auto args = sized<moecl_forward_args>();
  args.tokens = 1, args.x.memory = held[0], args.workspace.memory = held[2];
  cl_event brought = nullptr;
  EXPECT_OK(moecl_layer_prefetch(layer, beside, &args, 0, nullptr, &brought));
  ASSERT_NE(brought, nullptr);
  args.out.memory = held[1], args.workspace.memory = held[3];
  EXPECT_OK(moecl_layer_forward(layer, stream, &args, 1, &brought, nullptr));
  clReleaseEvent(brought);
  auto counts = sized<moecl_residency_counts>();
  EXPECT_OK(moecl_layer_residency(layer, stream, &counts));
  EXPECT_EQ(counts.prefetched, 4);
  EXPECT_EQ(counts.prefetched_hits, 4);
  EXPECT_EQ(counts.hits, 4);
  EXPECT_EQ(counts.misses, 0);
  args.x.memory = nullptr;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: the cl_mem is null",
               moecl_layer_prefetch(layer, beside, &args, 0, nullptr, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "layer: the pointer is null",
               moecl_layer_prefetch(nullptr, beside, &args, 0, nullptr, nullptr));
  EXPECT_OK(moecl_stream_finish(stream));
  EXPECT_OK(moecl_stream_finish(beside));
  for (cl_mem each : held) clReleaseMemObject(each);
}

}  // namespace
}  // namespace moecl::test
