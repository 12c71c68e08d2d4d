#include <moecl/context.hpp>
#include <moecl/trace.hpp>

#include <CL/cl.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/check.hpp"

namespace moecl {
namespace {

double host_now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cl_ulong profiling_ns(cl_event event, cl_profiling_info what) {
  cl_ulong value = 0;
  check_cl(clGetEventProfilingInfo(event, what, sizeof(value), &value, nullptr), "clGetEventProfilingInfo");
  return value;
}

/// A recorded command, then its times once it is complete.
struct Command {
  const void* queue;
  std::string device, name, variant, shape;
  std::uint64_t bytes, flops;
  bool event_times;
  Event event;
  double enqueued_us;  ///< host clock
  double start_us = 0, end_us = 0;
  bool resolved = false;
};

struct HostSpan {
  std::string name;
  double start_us, end_us;
  std::size_t thread;
};

}  // namespace

struct Trace::State {
  std::mutex mutex;
  std::vector<Command> commands;
  std::vector<HostSpan> spans;

  void resolve();
};

/// Reads the times of completed commands, on the host's clock: the device clock is shifted so that no command starts
/// before it was enqueued. Where the driver has no durations, a command spans from its enqueue to its completion.
void Trace::State::resolve() {
  std::map<const void*, double> clock_shift_us;
  for (Command& command : commands) {
    if (command.resolved) continue;
    command.event.wait();
    if (!command.event_times) continue;
    command.start_us = static_cast<double>(profiling_ns(command.event.handle(), CL_PROFILING_COMMAND_START)) / 1e3;
    command.end_us = static_cast<double>(profiling_ns(command.event.handle(), CL_PROFILING_COMMAND_END)) / 1e3;
    const double shift = command.enqueued_us - command.start_us;
    const auto [entry, added] = clock_shift_us.try_emplace(command.queue, shift);
    if (!added) entry->second = std::max(entry->second, shift);
  }
  const double now = host_now_us();
  std::map<const void*, double> last_end_us;
  for (Command& command : commands) {
    if (command.resolved) continue;
    if (command.event_times) {
      command.start_us += clock_shift_us[command.queue];
      command.end_us += clock_shift_us[command.queue];
    } else {
      command.start_us = std::max(command.enqueued_us, last_end_us[command.queue]);
      command.end_us = std::max(command.start_us, std::min(now, command.end_us));
    }
    last_end_us[command.queue] = command.end_us;
    command.event = Event();
    command.resolved = true;
  }
}

Trace::Trace() : state_(std::make_unique<State>()) {}
Trace::~Trace() = default;

void Trace::command(StreamView stream, cl_event event, WorkInfo info) {
  check_cl(clRetainEvent(event), "clRetainEvent");
  const std::lock_guard lock(state_->mutex);
  state_->commands.push_back({stream.queue, stream.device->caps.name, std::string(info.name), std::string(info.variant),
                              std::move(info.shape), info.bytes, info.flops, stream.device->caps.event_times_usable,
                              Event(event), host_now_us()});
}

Trace::Span::Span(Trace* trace, std::string name) : trace_(trace), name_(std::move(name)), start_us_(host_now_us()) {}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  const std::lock_guard lock(trace_->state_->mutex);
  trace_->state_->spans.push_back(
      {std::move(name_), start_us_, host_now_us(), std::hash<std::thread::id>{}(std::this_thread::get_id())});
}

std::vector<WorkSummary> Trace::summary() {
  const std::lock_guard lock(state_->mutex);
  state_->resolve();
  std::map<std::pair<std::string, std::string>, WorkSummary> totals;
  for (const Command& command : state_->commands) {
    WorkSummary& row = totals[{command.name, command.variant}];
    row.name = command.name;
    row.variant = command.variant;
    ++row.count;
    row.total_us += command.end_us - command.start_us;
  }
  std::vector<WorkSummary> rows;
  for (auto& [key, row] : totals) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
  return rows;
}

void Trace::write_chrome_json(const std::string& path) {
  (void)path;
  fail(ErrorCode::unsupported, "trace writing");
}

void Trace::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->commands.clear();
  state_->spans.clear();
}

}  // namespace moecl
