#include "host/c_api/c_api.hpp"

#include <moecl/device.hpp>
#include <moecl/trace.hpp>
#include <moecl/tuned_choices.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

namespace moecl::c_api {
namespace {

constexpr std::size_t longest_message = 4096;
/// Far above the size of any struct here: a larger size_bytes was never set.
constexpr std::size_t largest_struct = 4096;

// An array, because a string would need a destructor at thread exit, and memory when there is none left.
thread_local char last_message[longest_message] = "";

/// nullopt for MOECL_DEFAULT: the caller leaves the choice to the environment.
std::optional<bool> switched(std::int32_t value, const char* what) {
  require(value >= MOECL_DEFAULT && value <= MOECL_OFF, "{}: {} is not in [0, {}]", what, value,
          static_cast<int>(MOECL_OFF));
  return value == MOECL_DEFAULT ? std::nullopt : std::optional(value == MOECL_ON);
}

/// In C, levels start at 1: 0 is "unset".
constexpr int number_of(LogLevel level) { return static_cast<int>(level) + 1; }
static_assert(number_of(LogLevel::debug) == MOECL_LOG_DEBUG && number_of(LogLevel::info) == MOECL_LOG_INFO &&
              number_of(LogLevel::warning) == MOECL_LOG_WARNING && number_of(LogLevel::error) == MOECL_LOG_ERROR &&
              number_of(LogLevel::off) == MOECL_LOG_OFF);

struct Numbered {
  std::int32_t number;
  DType dtype;
};
constexpr Numbered dtypes[] = {{MOECL_F32, DType::f32},        {MOECL_F16, DType::f16}, {MOECL_BF16, DType::bf16},
                               {MOECL_I8, DType::i8},          {MOECL_U8, DType::u8},   {MOECL_BOOL, DType::boolean},
                               {MOECL_I32, DType::i32},        {MOECL_I64, DType::i64}, {MOECL_F8_E4M3, DType::f8_e4m3},
                               {MOECL_F8_E5M2, DType::f8_e5m2}};

ContextOptions context_options(const moecl_context_options* given) {
  const auto from = read_options(given, "options");
  require(from.log_level >= 0 && from.log_level <= MOECL_LOG_OFF, "options.log_level: {} is not in [0, {}]",
          from.log_level, static_cast<int>(MOECL_LOG_OFF));
  ContextOptions options;
  options.trace = switched(from.trace, "options.trace").value_or(options.trace);
  options.disk_cache = switched(from.disk_cache, "options.disk_cache");
  options.cache_dir = text_or_empty(from.cache_dir);
  options.cache_max_bytes = or_default(from.cache_max_bytes, options.cache_max_bytes);
  require(from.compile >= 0 && from.compile <= MOECL_COMPILE_IN_PROCESS, "options.compile: {} is not in [0, {}]",
          from.compile, static_cast<int>(MOECL_COMPILE_IN_PROCESS));
  if (from.compile != 0) options.compile = from.compile == MOECL_COMPILE_HELPER ? Compile::helper : Compile::in_process;
  constexpr std::uint64_t most_ms = std::uint64_t{1} << 40;
  require(from.compile_deadline_ms <= most_ms, "options.compile_deadline_ms: {} is above {}", from.compile_deadline_ms,
          most_ms);
  if (from.compile_deadline_ms != 0) options.compile_deadline = std::chrono::milliseconds(from.compile_deadline_ms);
  options.tuning = tuning::read;
  if (from.log_level != 0) options.log_level = static_cast<LogLevel>(from.log_level - 1);
  if (from.log != nullptr)
    options.log = [log = from.log, user = from.log_user](LogLevel level, std::string_view message) {
      log(user, static_cast<moecl_log_level>(number_of(level)), std::string(message).c_str());
    };
  return options;
}

DeviceReport device_at(std::int32_t index) {
  std::vector<DeviceReport> devices = enumerate_devices();
  require(index >= 0 && static_cast<std::size_t>(index) < devices.size(), "device {}: there are {} devices", index,
          devices.size());
  return std::move(devices[static_cast<std::size_t>(index)]);
}

}  // namespace

moecl_status failed(moecl_status status, const char* message) noexcept {
  std::snprintf(last_message, longest_message, "%s", message);
  return status;
}

moecl_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return MOECL_INVALID_ARGUMENT;
    case ErrorCode::unsupported:
      return MOECL_UNSUPPORTED;
    case ErrorCode::invalid_data:
      return MOECL_INVALID_DATA;
    case ErrorCode::io_error:
      return MOECL_IO_ERROR;
    case ErrorCode::no_device:
      return MOECL_NO_DEVICE;
    case ErrorCode::out_of_memory:
      return MOECL_OUT_OF_MEMORY;
    case ErrorCode::build_failed:
      return MOECL_BUILD_FAILED;
    case ErrorCode::device_error:
      return MOECL_DEVICE_ERROR;
    case ErrorCode::deadline_exceeded:
      return MOECL_DEADLINE_EXCEEDED;
  }
  return MOECL_INTERNAL_ERROR;
}

std::optional<DType> to_dtype(std::int32_t number, const char* what) {
  if (number == MOECL_DEFAULT_DTYPE) return std::nullopt;
  for (const Numbered& entry : dtypes)
    if (entry.number == number) return entry.dtype;
  fail(ErrorCode::invalid_argument, "{}: {} is no moecl_dtype", what, number);
}

std::int32_t number_of(DType dtype) {
  for (const Numbered& entry : dtypes)
    if (entry.dtype == dtype) return entry.number;
  fail(ErrorCode::unsupported, "the C interface has no number for {}", name(dtype));
}

DType dtype_of(std::int32_t number, const char* what) {
  switch (number) {
    case MOECL_F32:
      return DType::f32;
    case MOECL_F16:
      return DType::f16;
    case MOECL_BF16:
      return DType::bf16;
    default:
      fail(ErrorCode::invalid_argument, "{}: dtype {} is not f32 ({}), f16 ({}) or bf16 ({})", what, number,
           static_cast<int>(MOECL_F32), static_cast<int>(MOECL_F16), static_cast<int>(MOECL_BF16));
  }
}

std::size_t checked_size(std::uint64_t size_bytes, std::size_t alignment, const char* what) {
  require(size_bytes != 0, "{}: size_bytes is 0; set it to the sizeof of the struct", what);
  require(size_bytes % alignment == 0 && size_bytes <= largest_struct,
          "{}: size_bytes {} is no size of this struct (multiples of {} up to {})", what, size_bytes, alignment,
          largest_struct);
  return static_cast<std::size_t>(size_bytes);
}

void expect_zero_tail(const void* from, std::size_t known_bytes, std::size_t size_bytes, const char* what) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (std::size_t i = known_bytes; i < size_bytes; ++i)
    require(bytes[i] == 0, "{}: byte {} is set, but moecl {} knows only {} bytes of this struct", what, i,
            MOECL_VERSION, known_bytes);
}

}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

#define MOECL_TEXT(value) #value
#define MOECL_JOINED(major, minor, patch) MOECL_TEXT(major) "." MOECL_TEXT(minor) "." MOECL_TEXT(patch)
static_assert(std::string_view(MOECL_VERSION) ==
              MOECL_JOINED(MOECL_VERSION_MAJOR, MOECL_VERSION_MINOR, MOECL_VERSION_PATCH));

const char* moecl_version(void) { return MOECL_VERSION; }

const char* moecl_last_error_message(void) { return last_message; }

const char* moecl_status_name(moecl_status status) {
  if (status == MOECL_OK) return "ok";
  if (status == MOECL_INTERNAL_ERROR) return "internal_error";
  for (int code = 0; code <= static_cast<int>(ErrorCode::deadline_exceeded); ++code)
    if (status_of(static_cast<ErrorCode>(code)) == status) return to_string(static_cast<ErrorCode>(code));
  return "unknown";
}

moecl_status moecl_device_count(int32_t* out_count) {
  return guarded([&] { required(out_count, "out_count") = static_cast<std::int32_t>(enumerate_devices().size()); });
}

moecl_status moecl_device_describe(int32_t index, moecl_device_info* out_info) {
  return guarded([&] {
    const DeviceReport report = device_at(index);
    const DeviceCaps& caps = report.device.caps;
    moecl_device_info info{};
    info.platform = report.device.platform;
    info.device = report.device.handle;
    info.global_mem_bytes = caps.global_mem_bytes;
    info.max_alloc_bytes = caps.max_alloc_bytes;
    info.compute_units = caps.compute_units;
    copy_text(caps.platform_name, info.platform_name);
    copy_text(caps.name, info.name);
    copy_text(caps.driver_version, info.driver_version);
    copy_text(report.refused, info.refused);
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_context_create(int32_t device_index, const moecl_context_options* options,
                                  moecl_context** out_context) {
  return guarded([&] {
    moecl_context*& out = required(out_context, "out_context");
    const DeviceReport report = device_at(device_index);
    if (!report.refused.empty())
      fail(ErrorCode::no_device, "device {} ('{}' of '{}') cannot be used: {}", device_index, report.device.caps.name,
           report.device.caps.platform_name, report.refused);
    out = new moecl_context{Context::create({report.device}, context_options(options))};
  });
}

moecl_status moecl_context_create_matching(const char* platform_contains, const char* device_contains,
                                           const moecl_context_options* options, moecl_context** out_context) {
  return guarded([&] {
    moecl_context*& out = required(out_context, "out_context");
    const std::vector<Device> found = select_devices(text_or_empty(platform_contains), text_or_empty(device_contains));
    out = new moecl_context{Context::create({found.front()}, context_options(options))};
  });
}

moecl_status moecl_context_wrap(_cl_context* cl_context, const moecl_context_options* options,
                                moecl_context** out_context) {
  return guarded([&] {
    moecl_context*& out = required(out_context, "out_context");
    out = new moecl_context{Context::borrow(cl_context, context_options(options))};
  });
}

moecl_status moecl_context_destroy(moecl_context* context) {
  return guarded([&] { delete context; });
}

moecl_status moecl_context_save_programs(moecl_context* context) {
  return guarded([&] { required(context, "context").context->save_programs(); });
}

moecl_status moecl_context_native(const moecl_context* context, _cl_context** out_cl_context) {
  return guarded([&] { required(out_cl_context, "out_cl_context") = required(context, "context").context->handle(); });
}

moecl_status moecl_context_describe(const moecl_context* context, moecl_context_info* out_info) {
  return guarded([&] {
    const ContextCounters& counters = required(context, "context").context->counters();
    moecl_context_info info{};
    info.host_syncs = counters.host_syncs;
    info.programs_built = counters.programs_built;
    info.programs_from_disk = counters.programs_from_disk;
    info.kernels_launched = counters.kernels_launched;
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_trace_write(moecl_context* context, const char* path) {
  return guarded([&] {
    Trace* trace = required(context, "context").context->trace();
    require(trace != nullptr, "trace: the context was made without the option `trace`");
    trace->write_chrome_json(&required(path, "path"));
  });
}

moecl_status moecl_stream_create(moecl_context* context, int32_t device_index, moecl_stream** out_stream) {
  return guarded([&] {
    const std::shared_ptr<Context>& shared = required(context, "context").context;
    require(device_index >= 0, "stream: device index {} is negative", device_index);
    moecl_stream*& out = required(out_stream, "out_stream");
    out = new moecl_stream{shared, Stream(*shared, static_cast<std::size_t>(device_index))};
  });
}

moecl_status moecl_stream_wrap(moecl_context* context, _cl_command_queue* cl_queue, moecl_stream** out_stream) {
  return guarded([&] {
    const std::shared_ptr<Context>& shared = required(context, "context").context;
    moecl_stream*& out = required(out_stream, "out_stream");
    out = new moecl_stream{shared, Stream::borrow(*shared, cl_queue)};
  });
}

moecl_status moecl_stream_destroy(moecl_stream* stream) {
  return guarded([&] { delete stream; });
}

moecl_status moecl_stream_native(const moecl_stream* stream, _cl_command_queue** out_cl_queue) {
  return guarded([&] { required(out_cl_queue, "out_cl_queue") = required(stream, "stream").stream.view().queue; });
}

moecl_status moecl_stream_finish(moecl_stream* stream) {
  return guarded([&] { required(stream, "stream").stream.finish(); });
}

moecl_status moecl_stream_mark(moecl_stream* stream, uint32_t num_wait_events, _cl_event* const* wait_events,
                               _cl_event** out_event) {
  return guarded([&] {
    const StreamView on = required(stream, "stream").stream;
    Event done;
    enqueue_marker(on, {wait_list(*on.context, num_wait_events, wait_events), out_event != nullptr ? &done : nullptr});
    on.flush();
    if (out_event != nullptr) *out_event = done.release();
  });
}
