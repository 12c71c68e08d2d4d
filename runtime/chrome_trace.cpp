#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "runtime/atomic_file.hpp"
#include "runtime/check.hpp"
#include "runtime/trace_record.hpp"

namespace moecl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t host_pid = 1, first_device_pid = 2;

std::string text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// The events of one file. Complete events are sorted by time, an enclosing one before those within.
class Events {
 public:
  explicit Events(std::int64_t origin_ns) : origin_ns_(origin_ns) {}

  void name(const char* what, std::size_t pid, std::size_t tid, const std::string& name) {
    names_.push_back({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
  }
  void complete(const std::string& name, const char* category, std::size_t pid, std::size_t tid, std::int64_t begin_ns,
                std::int64_t end_ns, Json args = Json::object()) {
    complete_.push_back({begin_ns,
                         end_ns,
                         {{"ph", "X"},
                          {"name", name},
                          {"cat", category},
                          {"pid", pid},
                          {"tid", tid},
                          {"ts", us(begin_ns - origin_ns_)},
                          {"dur", us(end_ns - begin_ns)},
                          {"args", std::move(args)}}});
  }
  /// An arrow between the events that begin at those times.
  void flow(const std::string& name, std::size_t id, std::size_t tid, std::int64_t from_ns, std::size_t to_pid,
            std::size_t to_tid, std::int64_t to_ns) {
    const auto end = [&](const char* phase, std::size_t pid, std::size_t track, std::int64_t at_ns) {
      return Json{{"ph", phase},
                  {"name", name},
                  {"cat", "flow"},
                  {"id", id},
                  {"pid", pid},
                  {"tid", track},
                  {"ts", us(at_ns - origin_ns_)}};
    };
    flows_.push_back(end("s", host_pid, tid, from_ns));
    flows_.push_back(end("f", to_pid, to_tid, to_ns));
    flows_.back()["bp"] = "e";
  }

  std::string list() {
    // An outer span goes before its inner ones, an event without length before one that begins at its end.
    const auto key = [](const Complete& event) {
      return std::tuple(event.begin_ns, event.end_ns != event.begin_ns, -event.end_ns);
    };
    std::stable_sort(complete_.begin(), complete_.end(),
                     [&](const Complete& a, const Complete& b) { return key(a) < key(b); });
    std::string lines;
    const auto add = [&](const Json& event) { lines.append(lines.empty() ? "" : ",\n").append(text(event)); };
    for (const Json& event : names_) add(event);
    for (const Complete& event : complete_) add(event.json);
    for (const Json& event : flows_) add(event);
    return lines;
  }

 private:
  struct Complete {
    std::int64_t begin_ns, end_ns;
    Json json;
  };
  static double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

  std::int64_t origin_ns_;
  std::vector<Json> names_, flows_;
  std::vector<Complete> complete_;
};

}  // namespace

void write_chrome_trace(const std::string& path, std::int64_t origin_ns, const std::vector<TracedDevice>& devices,
                        const std::vector<TracedQueue>& queues, const std::vector<TracedCommand>& commands,
                        const std::vector<TracedSpan>& spans) {
  Events events(origin_ns);
  events.name("process_name", host_pid, 0, "host");
  std::set<std::size_t> threads;
  for (const TracedCommand& command : commands) threads.insert(command.thread);
  for (const TracedSpan& span : spans) threads.insert(span.thread);
  for (const std::size_t thread : threads)
    events.name("thread_name", host_pid, thread + 1, fmt::format("thread {}", thread + 1));
  for (std::size_t i = 0; i < devices.size(); ++i)
    events.name("process_name", first_device_pid + i, 0, devices[i].name);
  Json host_times = Json::object();
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const bool on_host = !queues[i].host_times_reason.empty();
    events.name("thread_name", first_device_pid + queues[i].device, i + 1,
                fmt::format("queue {}{}", i + 1, on_host ? " (host times)" : ""));
    if (on_host) host_times[fmt::format("queue {}", i + 1)] = queues[i].host_times_reason;
  }
  for (const TracedSpan& span : spans)
    events.complete(span.name, "span", host_pid, span.thread + 1, span.begin_ns, span.end_ns);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const TracedCommand& command = commands[i];
    if (command.event != nullptr) continue;
    const std::size_t pid = first_device_pid + queues[command.queue].device, tid = command.queue + 1;
    Json args{
        {"variant", command.variant}, {"shape", command.shape}, {"bytes", command.bytes}, {"flops", command.flops}};
    if (command.status < 0) args["failed"] = cl_status_text(command.status);
    events.complete(command.name, command.kind == WorkKind::kernel ? "kernel" : "transfer", pid, tid, command.start_ns,
                    command.end_ns, std::move(args));
    events.complete(command.name, "enqueue", host_pid, command.thread + 1, command.begin_ns, command.enqueued_ns);
    events.flow(command.name, i + 1, command.thread + 1, command.begin_ns, pid, tid, command.start_ns);
  }
  const Json other{{"producer", "moecl " MOECL_VERSION}, {"host_times", host_times}};
  const std::string file =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":" + text(other) + ",\"traceEvents\":[\n" + events.list() + "\n]}\n";
  AtomicFile out(path);
  out.write(file.data(), file.size());
  out.commit();
}

}  // namespace moecl
