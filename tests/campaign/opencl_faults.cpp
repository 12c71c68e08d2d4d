// An OpenCL loader layer (OPENCL_LAYERS) that makes one call of a program fail, and counts calls and objects.
//
// OPENCL_FAULT=clName:N:error   the N-th call of clName (from 1) returns CL_OUT_OF_RESOURCES and does nothing
// OPENCL_FAULT=clName:N:event   the N-th command of clName that does not block is never run: its event turns negative
//                               some milliseconds later, and so do the events of commands that wait for it. From then
//                               on its queue accepts no command.
// OPENCL_FAULT_REPORT=PATH      at its end the program writes to PATH a line "clName CALLS COMMANDS" for each entry
//                               point that it called, and "leaked KIND COUNT" for objects that it did not release
#include <CL/cl.h>
#include <CL/cl_icd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/opencl_layer.hpp"

namespace {

constexpr cl_int failure = CL_OUT_OF_RESOURCES;
constexpr std::chrono::milliseconds later{3};

struct Fault {
  std::string entry_point;
  long call = 0;
  bool as_event = false;

  static Fault from_environment() {
    const char* const text = std::getenv("OPENCL_FAULT");
    if (text == nullptr) return {};
    const std::string all = text;
    const std::size_t first = all.find(':'), second = all.find(':', first + 1);
    if (second == all.npos) std::fprintf(stderr, "OPENCL_FAULT: expected clName:N:error or clName:N:event\n");
    if (second == all.npos) std::exit(2);
    return {all.substr(0, first), std::stol(all.substr(first + 1)), all.substr(second + 1) == "event"};
  }
};
const Fault fault = Fault::from_environment();

struct EntryPoint {
  const char* name;
  std::atomic<long> calls{0}, commands{0};  ///< commands: calls that do not block

  /// Whether this call is the one that fails.
  bool fails(std::atomic<long>& count, bool as_event) {
    return ++count == fault.call && as_event == fault.as_event && fault.entry_point == name;
  }
};

template <class T>
constexpr const char* kind_of = nullptr;
template <>
constexpr const char* kind_of<cl_context> = "context";
template <>
constexpr const char* kind_of<cl_command_queue> = "queue";
template <>
constexpr const char* kind_of<cl_mem> = "buffer";
template <>
constexpr const char* kind_of<cl_program> = "program";
template <>
constexpr const char* kind_of<cl_kernel> = "kernel";
template <>
constexpr const char* kind_of<cl_event> = "event";
template <>
constexpr const char* kind_of<cl_device_id> = "device";
/// References that the program holds to objects of a kind.
template <class Handle>
std::atomic<long> references{0};

/// The queue of a command that fails later, set once the command has failed. `breaking` keeps enqueues and changes of
/// user events strictly before or after that.
std::atomic<cl_command_queue> broken{nullptr};
std::shared_mutex breaking;

/// PoCL (source of 3.1 to 6.0) never ends a command that waits for an already failed event. This layer refuses it.
bool waits_for_failed(cl_uint count, const cl_event* events) {
  return std::any_of(events, events + count, [](cl_event event) {
    cl_int status = CL_COMPLETE;
    below->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
    return status < 0;
  });
}

/// PoCL locks a failed command's event after releasing it (pocl_update_event_failed). From 5.0 on, it also locks events
/// that the command waited for and that have ended meanwhile. It aborts if nobody else holds such an event. A program
/// can only prevent this by holding all events. If a command will fail, this layer holds them for the program, and
/// never releases them: the driver may be about to end, too.
const bool holding = fault.as_event;

/// The thread that fails the trigger of `fail_later`.
std::thread failing;

/// Enqueues a command that waits for the same events as the faulty one, and then fails.
cl_int fail_later(cl_command_queue queue, cl_uint count, const cl_event* wait, cl_event* event) {
  cl_context context = nullptr;
  below->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, nullptr);
  cl_event trigger = below->clCreateUserEvent(context, nullptr);
  std::vector<cl_event> before(wait, wait + count);
  before.push_back(trigger);
  const cl_int status = below->clEnqueueMarkerWithWaitList(queue, count + 1, before.data(), event);
  failing = std::thread([trigger, queue] {
    std::this_thread::sleep_for(later);
    const std::unique_lock lock(breaking);
    // PoCL ends a command twice if it fails while a command that it waits for is ending. So others get time to end.
    std::this_thread::sleep_for(later);
    broken = queue;
    below->clSetUserEventStatus(trigger, failure);
  });
  std::atexit([] { failing.join(); });  // before the driver's own exit handlers
  return status;
}

/// The replacement in the table for the function at `member`, of the same type. `entry` has its name and counts.
template <auto member, EntryPoint& entry>
struct Layer;
template <class Result, class... Args, Result (CL_API_CALL* cl_icd_dispatch::*member)(Args...), EntryPoint& entry>
struct Layer<member, entry> {
  using Last = std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>;
  static constexpr bool gives_handle = !std::is_same_v<Result, cl_int>;
  static constexpr bool enqueues = std::is_same_v<Last, cl_event*>;

  static Result CL_API_CALL call(Args... args) {
    const std::tuple<Args...> all(args...);
    const bool fails = entry.fails(entry.calls, false);
    if constexpr (gives_handle)
      return make(fails, all);
    else if constexpr (enqueues)
      return fails ? failure : enqueue(all);
    else if constexpr (sizeof...(Args) == 1)
      return count(fails, args...);
    else
      return fails ? failure : pass(all);
  }

 private:
  static constexpr std::size_t last = sizeof...(Args) - 1;

  static cl_int pass(const std::tuple<Args...>& all) {
    std::shared_lock lock(breaking, std::defer_lock);
    if (std::string_view(entry.name) == "clSetUserEventStatus") lock.lock();  // it starts commands
    const cl_int status = std::apply(below->*member, all);
    if constexpr (std::is_same_v<decltype(member), decltype(&cl_icd_dispatch::clCreateSubDevices)>)
      if (status == CL_SUCCESS && std::get<3>(all) != nullptr) references<cl_device_id> += std::get<2>(all);
    return status;
  }

  static Result make(bool fails, const std::tuple<Args...>& all) {
    if (fails) {
      if (std::get<last>(all) != nullptr) *std::get<last>(all) = failure;
      return nullptr;
    }
    const Result made = std::apply(below->*member, all);
    if constexpr (kind_of<Result> != nullptr)
      if (made != nullptr) ++references<Result>;
    if constexpr (std::is_same_v<Result, cl_event>)
      if (made != nullptr && holding) below->clRetainEvent(made);
    return made;
  }

  /// Retains, releases, flushes and finishes.
  static cl_int count(bool fails, Last handle) {
    const std::string_view name = entry.name;
    const bool releases = name.substr(0, 9) == "clRelease", retains = name.substr(0, 8) == "clRetain";
    if (releases) --references<Last>;  // even if the call fails: the program has let go, and does not retry
    const cl_int status = fails ? failure : (below->*member)(handle);
    if (retains && status == CL_SUCCESS) ++references<Last>;
    return status;
  }

  static cl_int enqueue(std::tuple<Args...> all) {
    const cl_command_queue queue = std::get<0>(all);
    const cl_uint waits = std::get<last - 2>(all);
    const cl_event* const wait = std::get<last - 1>(all);
    const bool blocking = blocks(all), fails = !blocking && entry.fails(entry.commands, true);
    std::shared_lock lock(breaking, std::defer_lock);
    if (!blocking) lock.lock();
    if (broken == queue) return failure;
    if (broken != nullptr && waits_for_failed(waits, wait)) return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    cl_event event = nullptr;
    cl_event* const asked = std::get<last>(all);
    if (asked != nullptr || fails || holding) std::get<last>(all) = &event;
    const cl_int status = fails ? fail_later(queue, waits, wait, &event) : std::apply(below->*member, all);
    if (status != CL_SUCCESS) return status;
    if (holding && asked != nullptr) below->clRetainEvent(event);
    if (blocking && broken == queue) return failure;  // it may have come after the failed command
    if (asked == nullptr) return CL_SUCCESS;
    *asked = event;
    ++references<cl_event>;
    return CL_SUCCESS;
  }

  /// Whether the call blocks: reads and writes have a flag behind queue and buffer.
  static bool blocks(const std::tuple<Args...>& all) {
    if constexpr (sizeof...(Args) > 3)
      if constexpr (std::is_same_v<std::tuple_element_t<1, std::tuple<Args...>>, cl_mem> &&
                    std::is_same_v<std::tuple_element_t<2, std::tuple<Args...>>, cl_bool>)
        return std::get<2>(all) != CL_FALSE;
    return false;
  }
};

// Every entry point that moecl calls.
// clang-format off
#define ENTRY_POINTS(X)                                                                                               \
  X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clCreateSubDevices)                 \
  X(clRetainDevice) X(clReleaseDevice) X(clCreateContext)                                                             \
  X(clRetainContext) X(clReleaseContext) X(clGetContextInfo) X(clCreateCommandQueue) X(clRetainCommandQueue)          \
  X(clReleaseCommandQueue) X(clGetCommandQueueInfo) X(clCreateBuffer) X(clCreateSubBuffer) X(clRetainMemObject)       \
  X(clReleaseMemObject) X(clGetMemObjectInfo) X(clCreateProgramWithSource) X(clCreateProgramWithBinary)               \
  X(clRetainProgram) X(clReleaseProgram) X(clBuildProgram) X(clGetProgramInfo) X(clGetProgramBuildInfo)               \
  X(clCreateKernel) X(clRetainKernel) X(clReleaseKernel) X(clSetKernelArg) X(clGetKernelInfo)                         \
  X(clGetKernelWorkGroupInfo) X(clWaitForEvents) X(clGetEventInfo) X(clCreateUserEvent) X(clSetUserEventStatus)       \
  X(clRetainEvent) X(clReleaseEvent) X(clGetEventProfilingInfo) X(clSetEventCallback) X(clFlush) X(clFinish)          \
  X(clEnqueueReadBuffer) X(clEnqueueWriteBuffer) X(clEnqueueCopyBuffer) X(clEnqueueFillBuffer)                        \
  X(clEnqueueMapBuffer) X(clEnqueueUnmapMemObject) X(clEnqueueNDRangeKernel) X(clEnqueueMarkerWithWaitList)
// clang-format on

#define DECLARE(name) EntryPoint entry_of_##name{#name};
ENTRY_POINTS(DECLARE)
#define ADDRESS(name) &entry_of_##name,
EntryPoint* const entry_points[] = {ENTRY_POINTS(ADDRESS)};

template <class... Handles>
void report_leaks(std::FILE* file) {
  const auto report = [file](const char* kind, long count) {
    if (count != 0) std::fprintf(file, "leaked %s %ld\n", kind, count);
  };
  (report(kind_of<Handles>, references<Handles>), ...);
}

/// Writes the report at the end of the process, after the program has destroyed its objects.
struct Report {
  ~Report() {
    const char* const path = std::getenv("OPENCL_FAULT_REPORT");
    std::FILE* const file = path != nullptr ? std::fopen(path, "w") : nullptr;
    if (file == nullptr) return;
    for (const EntryPoint* entry : entry_points)
      if (entry->calls != 0)
        std::fprintf(file, "%s %ld %ld\n", entry->name, entry->calls.load(), entry->commands.load());
    report_leaks<cl_context, cl_command_queue, cl_mem, cl_program, cl_kernel, cl_event, cl_device_id>(file);
    std::fclose(file);
  }
} const report_at_end;

void override_entries(cl_icd_dispatch& table) {
#define REPLACE(name) table.name = Layer<&cl_icd_dispatch::name, entry_of_##name>::call;
  ENTRY_POINTS(REPLACE)
}

}  // namespace
