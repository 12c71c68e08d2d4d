#pragma once
#include <moecl/stream.hpp>
#include <moecl/work_info.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// One row of `Trace::summary`.
struct WorkSummary {
  std::string name, variant;
  WorkKind kind = WorkKind::kernel;
  std::uint64_t count = 0;
  double total_us = 0;
};

/// Records every kernel and transfer of a context, and host spans, for ui.perfetto.dev and chrome://tracing.
///
/// Times are those of the host's steady clock. Device times are shifted onto it: the shift aligns the times at which
/// host and device saw a command enqueued, so that no command is queued before the host asked for it. The shift is too
/// short by at most the quickest enqueue (microseconds). Queues without usable event times (the driver has none, or the
/// caller's queue has no profiling) get host times instead. A command then lasts from its enqueue, or the end of the
/// command before, to the driver's report of completion. Mesa rusticl may give that report up to 0.2 ms after finish
/// returned. The log and the file say which queues have host times.
///
/// Threads: safe. Cost: profiling queues cost 7 to 10 us a command on NVIDIA, so only contexts made to trace have them.
/// Each command keeps its event and about 300 bytes until `clear`.
class Trace {
 public:
  Trace();
  ~Trace();

  /// Now, on the clock of the trace.
  static std::int64_t now_ns() noexcept;
  /// Retains the event; its times are read with the trace. `begin_ns`: when the host began to enqueue the command.
  void command(StreamView stream, const Event& event, WorkInfo info, std::int64_t begin_ns);
  /// Records the lifetime of the object as a host span.
  class Span {
   public:
    Span(Trace* trace, std::string_view name);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    std::string name_;
    std::int64_t begin_ns_;
  };

  /// Totals by name and variant, longest first. Stops the host until the commands recorded so far are complete.
  /// Commands that other threads record meanwhile are left out, as in write_chrome_json.
  std::vector<WorkSummary> summary();
  /// Writes the recorded commands and spans in Chrome's JSON object format. Stops the host as `summary` does.
  ///
  /// `traceEvents`, times in microseconds since the trace was made:
  /// - ph M: process_name and thread_name. pid 1 is the host, with a tid for each thread. Then each device has a pid,
  ///   with a tid for each queue.
  /// - ph X, cat kernel or transfer: a command, with args variant, shape, bytes, flops, and `failed` with its status.
  /// - ph X, cat span: a `Span`. ph X, cat enqueue: the host call that enqueued a command, named after it.
  /// - ph s and f, cat flow: an arrow from that call to the command, by id.
  ///
  /// `otherData`: producer, and host_times with the queues that have host times, each with the reason.
  /// Errors: io_error  the file cannot be written; no part of it is left. If host memory runs out, the process ends
  /// Source: "Trace Event Format", the Chromium project
  void write_chrome_json(const std::string& path);
  /// Forgets what was recorded, for example after a warm-up.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
