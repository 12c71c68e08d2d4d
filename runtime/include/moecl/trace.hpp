#pragma once
#include <moecl/stream.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// Facts about a command for traces and benchmarks.
struct WorkInfo {
  std::string_view name;     ///< operator or transfer: "grouped_gemm"
  std::string_view variant;  ///< kernel variant that was chosen
  std::string shape;         ///< "[33, 96] x [8, 160, 96]"
  std::uint64_t bytes = 0;   ///< least bytes moved
  std::uint64_t flops = 0;
};

/// One row of `Trace::summary`.
struct WorkSummary {
  std::string name, variant;
  std::uint64_t count = 0;
  double total_us = 0;
};

/// Records every kernel and transfer of a context, and host spans, for ui.perfetto.dev and chrome://tracing.
///
/// Threads: safe. Cost: profiling queues cost 7 to 10 us a command on NVIDIA, so only contexts made to trace have one.
class Trace {
 public:
  Trace();
  ~Trace();

  /// Retains the event; its times are read when the trace is written.
  void command(StreamView stream, _cl_event* event, WorkInfo info);
  /// Records the lifetime of the object as a host span.
  class Span {
   public:
    Span(Trace* trace, std::string name);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    std::string name_;
    double start_us_ = 0;
  };

  /// Totals by name and variant, longest first. Stops the host until the recorded commands are complete.
  std::vector<WorkSummary> summary();
  /// Chrome JSON: complete events, one track a queue, host track beside. Stops the host as `summary` does.
  /// Errors: io_error  the file cannot be written; nothing is left half written
  void write_chrome_json(const std::string& path);
  /// Forgets what was recorded, for example after a warm-up.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
