#pragma once
// What a trace holds, and the writer of its file.
#include <moecl/event.hpp>
#include <moecl/work_info.hpp>

#include <string>
#include <vector>

#include "runtime/completion_time.hpp"

namespace moecl {

/// A queue that recorded commands: one track.
struct TracedQueue {
  const void* handle;
  std::size_t device;
  std::string host_times_reason;  ///< empty: the queue has event times
};

struct TracedDevice {
  const void* handle;
  std::string name;
  /// Host clock minus device clock. Only ever grows, so commands of a queue keep their order from one reading to the
  /// next.
  std::int64_t shift_ns;
};

struct TracedCommand {
  std::string name, variant, shape;
  std::uint64_t bytes, flops;
  WorkKind kind;
  std::size_t queue, thread;
  std::int64_t begin_ns, enqueued_ns;  ///< the host's enqueue call
  std::shared_ptr<const Event> event;  ///< null once the times below are read
  CompletionTime completed_ns;         ///< null where event times are usable
  std::int64_t start_ns = 0, end_ns = 0;
  int status = 0;  ///< negative: the command failed
};

struct TracedSpan {
  std::string name;
  std::size_t thread;
  std::int64_t begin_ns, end_ns;
};

/// Leaves out commands whose times are not read. Errors: io_error
void write_chrome_trace(const std::string& path, std::int64_t origin_ns, const std::vector<TracedDevice>& devices,
                        const std::vector<TracedQueue>& queues, const std::vector<TracedCommand>& commands,
                        const std::vector<TracedSpan>& spans);

}  // namespace moecl
