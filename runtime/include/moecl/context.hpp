#pragma once
#include <moecl/device.hpp>
#include <moecl/event.hpp>
#include <moecl/log.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

class KeptDecisions;
class KernelLibrary;
class SideQueues;
class Trace;

/// Where a driver compiles a program of which there is no binary yet.
enum class Compile : std::uint8_t {
  helper,  ///< in a process of its own, which returns a binary; if that process dies, the build fails (build_failed)
  in_process,  ///< in this process: a compiler that crashes takes the process along
};

/// Options left unset are taken from the environment, then from the defaults; see <moecl/environment.hpp>.
struct ContextOptions {
  LogCallback log;  ///< none: log lines are dropped
  /// Called once for each device; `tuning::read` of <moecl/tuned_choices.hpp> reads tables of measurements. None: every
  /// operator keeps its defaults. Choices are logged at level info, problems as warnings.
  std::function<Tuning(const DeviceCaps&)> tuning;
  std::optional<LogLevel> log_level;  ///< lowest level that reaches `log`
  std::optional<Compile> compile;     ///< unset: MOECL_COMPILE, else helper
  /// Longest wait for a helper. A program that takes longer fails to build, and this is remembered.
  /// Unset: MOECL_COMPILE_DEADLINE, else 300 s
  std::optional<std::chrono::milliseconds> compile_deadline;
  bool trace = false;                         ///< collect a trace; streams made afterwards have profiling queues
  std::optional<bool> disk_cache;             ///< keep compiled programs on disk
  std::string cache_dir;                      ///< folder of compiled programs
  std::uint64_t cache_max_bytes = 256 << 20;  ///< beyond it the least recently used programs are removed
};

/// What a context has done so far; for tests, summaries and embedders that watch for host stops.
struct ContextCounters {
  std::atomic<std::uint64_t> host_syncs{0};      ///< calls that stopped the host: finish, read_blocking, write_blocking
  std::atomic<std::uint64_t> programs_built{0};  ///< compiled from source
  std::atomic<std::uint64_t> programs_from_disk{0};  ///< loaded from the disk cache
  std::atomic<std::uint64_t> kernels_launched{0};
  std::atomic<std::uint64_t> user_events_unset{0};    ///< not set by moecl yet; commands may wait for them
  std::atomic<std::uint64_t> user_events_refused{0};  ///< of those: refused by the driver; waiters never run
};

/// Owns a cl_context over one or more devices of one platform, its compiled programs, log and trace. There are no
/// globals: two contexts share only the compile helpers, the folder of the disk cache and, like their driver, the
/// process. In a child that was forked after the first use of OpenCL, every call that enqueues or waits fails as
/// `unsupported`.
/// Threads: safe. Lifetime: outlives every stream, buffer and layer made from it; its address is stable.
class Context {
 public:
  /// Errors: invalid_argument  no device, devices of different platforms, or an environment variable with a bad value;
  ///         out_of_memory, device_error
  static std::unique_ptr<Context> create(std::vector<Device> devices, ContextOptions options = {});
  /// Retains the caller's cl_context; the destructor releases it once.
  static std::unique_ptr<Context> borrow(_cl_context* context, ContextOptions options = {});
  /// Saves the programs, as `save_programs`.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  _cl_context* handle() const noexcept { return handle_.get(); }
  const std::vector<Device>& devices() const noexcept { return devices_; }
  KernelLibrary& kernels() noexcept { return *kernels_; }
  /// Writes the programs compiled so far to the disk cache; a failure is only logged. Programs that a helper compiled
  /// are there already. With Compile::in_process, a process that seldom destroys its context calls this once after the
  /// first results.
  ///
  /// Cost: PoCL makes a program's binary on request, in about 0.1 s a kernel. Only then does it add the code of the
  /// work-group sizes that have run. Therefore nothing is saved while results are awaited.
  void save_programs();
  /// Null unless tracing.
  Trace* trace() noexcept { return trace_.get(); }
  ContextCounters& counters() noexcept { return counters_; }
  /// See StreamView::side.
  SideQueues& side_queues() noexcept { return *side_queues_; }
  /// Kept decisions of operators that are enqueued without a plan.
  KeptDecisions& decisions() noexcept { return *decisions_; }
  /// Keeps the event of a failed command as long as this context. PoCL 3.1 aborts the process if the last reference
  /// goes while the thread that made the event fail is still in clSetUserEventStatus.
  void keep_failed(Event event);
  /// Passes a line of at least ContextOptions::log_level to ContextOptions::log.
  void log(LogLevel level, std::string_view message) const {
    if (log_ && level >= log_level_) log_(level, message);
  }

 private:
  struct Release {
    void operator()(_cl_context* handle) const noexcept;
  };
  using Handle = std::unique_ptr<_cl_context, Release>;

  Context(Handle handle, std::vector<Device> devices, const ContextOptions& options);
  /// Sets Device::tuning and logs it.
  void tune(Device& device, const ContextOptions& options);
  /// Sets caps.nv_sm90a. A driver that cannot build such programs is only logged.
  void probe_sm90a(Device& device);

  Handle handle_;  ///< first member: released after the objects made from it
  std::vector<Device> devices_;
  LogCallback log_;
  LogLevel log_level_;
  ContextCounters counters_;
  std::mutex failed_mutex_;
  std::vector<Event> failed_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<KernelLibrary> kernels_;
  std::unique_ptr<KeptDecisions> decisions_;
  std::unique_ptr<SideQueues> side_queues_;
};

}  // namespace moecl
