#include <moecl/context.hpp>
#include <moecl/trace.hpp>

#include <CL/cl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"
#include "runtime/completion_time.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/trace_record.hpp"

namespace moecl {
namespace {

std::int64_t profiling_ns(cl_event event, cl_profiling_info what) {
  cl_ulong value = 0;
  check_cl(clGetEventProfilingInfo(event, what, sizeof(value), &value, nullptr), "clGetEventProfilingInfo");
  return static_cast<std::int64_t>(value);
}

/// Why a queue's commands have no event times; empty when they have.
std::string host_times_reason(StreamView stream) {
  if (!stream.device->caps.event_times_usable) return "the driver returns no durations";
  cl_command_queue_properties properties = 0;
  check_cl(clGetCommandQueueInfo(stream.queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr),
           "clGetCommandQueueInfo");
  return (properties & CL_QUEUE_PROFILING_ENABLE) != 0 ? "" : "the queue was made without profiling";
}

/// The index of the element whose handle is `handle`; `size()` when there is none.
template <class T>
std::size_t index_of(const std::vector<T>& list, const void* handle) {
  return static_cast<std::size_t>(
      std::find_if(list.begin(), list.end(), [&](const T& item) { return item.handle == handle; }) - list.begin());
}

}  // namespace

struct Trace::State {
  const std::int64_t origin_ns = now_ns();
  std::mutex mutex;
  Context* context = nullptr;  ///< of the streams, once one has recorded
  std::vector<TracedDevice> devices;
  std::vector<TracedQueue> queues;
  std::vector<TracedCommand> commands;
  std::vector<TracedSpan> spans;
  std::map<std::thread::id, std::size_t> threads;

  std::size_t this_thread() { return threads.try_emplace(std::this_thread::get_id(), threads.size()).first->second; }
  std::size_t queue_index(StreamView stream, const std::string& reason);
  std::unique_lock<std::mutex> resolve();
};

std::size_t Trace::State::queue_index(StreamView stream, const std::string& reason) {
  context = stream.context;
  const std::size_t index = index_of(queues, stream.queue);
  if (index < queues.size()) return index;
  const std::size_t device = index_of(devices, stream.device->handle);
  if (device == devices.size())
    devices.push_back({stream.device->handle, stream.device->caps.name, std::numeric_limits<std::int64_t>::min()});
  const bool told = std::any_of(queues.begin(), queues.end(), [&](const TracedQueue& queue) {
    return queue.device == device && queue.host_times_reason == reason;
  });
  queues.push_back({stream.queue, device, reason});
  if (!reason.empty() && !told)
    stream.context->log(LogLevel::warning,
                        fmt::format("trace: queues of '{}' get host times: {}", stream.device->caps.name, reason));
  return index;
}

/// Waits for the commands recorded so far, and reads their times. Returns with the lock held, but waits without it: a
/// command may wait for another thread that has to record first.
std::unique_lock<std::mutex> Trace::State::resolve() {
  expect_driver_process();
  std::unique_lock lock(mutex);
  std::set<std::shared_ptr<const Event>> awaited;
  for (const TracedCommand& command : commands)
    if (command.event != nullptr) awaited.insert(command.event);
  lock.unlock();
  for (const auto& event : awaited) {
    expect_end(*context, *event);
    cl_event handle = event->handle();
    // A failed command is one of the trace's facts, so the status of the wait is not an error here.
    clWaitForEvents(1, &handle);
  }
  lock.lock();
  // Meanwhile another reader may have read some, `clear` may have removed some, and new ones may have been recorded.
  const auto to_read = [&](const TracedCommand& command) { return awaited.count(command.event) != 0; };
  for (TracedCommand& command : commands) {
    if (!to_read(command)) continue;
    cl_event event = command.event->handle();
    check_cl(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(command.status), &command.status, nullptr),
             "clGetEventInfo");
    if (command.completed_ns != nullptr || command.status < 0) continue;
    command.start_ns = profiling_ns(event, CL_PROFILING_COMMAND_START);
    command.end_ns = profiling_ns(event, CL_PROFILING_COMMAND_END);
    std::int64_t& shift = devices[queues[command.queue].device].shift_ns;
    shift = std::max(shift, command.begin_ns - profiling_ns(event, CL_PROFILING_COMMAND_QUEUED));
  }
  const std::int64_t now = now_ns();
  std::vector<std::int64_t> last_end_ns(queues.size(), 0);
  for (TracedCommand& command : commands) {
    std::int64_t& last_end = last_end_ns[command.queue];
    if (to_read(command)) {
      if (command.completed_ns == nullptr && command.status >= 0) {
        const std::int64_t shift = devices[queues[command.queue].device].shift_ns;
        command.start_ns += shift;
        command.end_ns += shift;
      } else {
        const std::int64_t reported = command.completed_ns != nullptr ? command.completed_ns->load() : 0;
        command.start_ns = std::max(command.begin_ns, last_end);
        command.end_ns = std::max(command.start_ns, reported != 0 ? reported : now);
      }
      command.event = nullptr;
    }
    last_end = std::max(last_end, command.end_ns);
  }
  return lock;
}

Trace::Trace() : state_(std::make_unique<State>()) {}
Trace::~Trace() = default;

std::int64_t Trace::now_ns() noexcept { return moecl::now_ns(); }

void Trace::command(StreamView stream, const Event& event, WorkInfo info, std::int64_t begin_ns) {
  const std::int64_t enqueued_ns = now_ns();
  check_cl(clRetainEvent(event.handle()), "clRetainEvent");
  auto retained = std::make_shared<const Event>(event.handle());
  // Asked for each command: a queue's handle may be that of an older queue which was released.
  const std::string reason = host_times_reason(stream);
  CompletionTime completed = reason.empty() ? nullptr : watch_completion(event.handle());
  const std::lock_guard lock(state_->mutex);
  state_->commands.push_back({std::string(info.name), std::string(info.variant), std::move(info.shape), info.bytes,
                              info.flops, info.kind, state_->queue_index(stream, reason), state_->this_thread(),
                              begin_ns, enqueued_ns, std::move(retained), std::move(completed)});
}

Trace::Span::Span(Trace* trace, std::string_view name) : trace_(trace), begin_ns_(trace != nullptr ? now_ns() : 0) {
  if (trace != nullptr) name_ = name;
}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  const std::int64_t end_ns = now_ns();
  const std::lock_guard lock(trace_->state_->mutex);
  try {
    trace_->state_->spans.push_back({std::move(name_), trace_->state_->this_thread(), begin_ns_, end_ns});
  } catch (const std::bad_alloc&) {  // the trace lacks this one
  }
}

std::vector<WorkSummary> Trace::summary() {
  const std::unique_lock lock = state_->resolve();
  std::map<std::pair<std::string, std::string>, WorkSummary> totals;
  for (const TracedCommand& command : state_->commands) {
    if (command.event != nullptr) continue;  // recorded since
    WorkSummary& row = totals[{command.name, command.variant}];
    row.name = command.name;
    row.variant = command.variant;
    row.kind = command.kind;
    ++row.count;
    row.total_us += static_cast<double>(command.end_ns - command.start_ns) / 1e3;
  }
  std::vector<WorkSummary> rows;
  for (auto& [key, row] : totals) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
  return rows;
}

void Trace::write_chrome_json(const std::string& path) {
  const std::unique_lock lock = state_->resolve();
  write_chrome_trace(path, state_->origin_ns, state_->devices, state_->queues, state_->commands, state_->spans);
}

void Trace::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->commands.clear();
  state_->spans.clear();
}

}  // namespace moecl
