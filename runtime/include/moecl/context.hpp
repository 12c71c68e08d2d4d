#pragma once
#include <moecl/device.hpp>
#include <moecl/log.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moecl {

class KernelLibrary;
class Trace;

struct ContextOptions {
  LogCallback log;         ///< none: log lines are dropped
  bool trace = false;      ///< collect a trace; streams made afterwards have profiling queues
  bool disk_cache = true;  ///< keep compiled programs on disk
  std::string cache_dir;   ///< empty: $XDG_CACHE_HOME/moecl/cl, else ~/.cache/moecl/cl
};

/// What a context has done so far; for tests, summaries and embedders that watch for host stops.
struct ContextCounters {
  std::atomic<std::uint64_t> host_syncs{0};          ///< calls that stopped the host
  std::atomic<std::uint64_t> programs_built{0};      ///< compiled from source
  std::atomic<std::uint64_t> programs_from_disk{0};  ///< loaded from the disk cache
  std::atomic<std::uint64_t> kernels_launched{0};
};

/// Owns a cl_context over one or more devices of one platform, its compiled programs, log and trace.
///
/// There are no globals: two contexts share nothing but the folder of the disk cache.
/// Threads: safe. Lifetime: outlives every stream, buffer and layer made from it; its address is stable.
class Context {
 public:
  /// Errors: invalid_argument  no device, or devices of different platforms; device_error
  static std::unique_ptr<Context> create(std::vector<Device> devices, ContextOptions options = {});
  /// Retains the caller's cl_context; released once by the destructor.
  static std::unique_ptr<Context> borrow(_cl_context* context, ContextOptions options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  _cl_context* handle() const noexcept { return handle_; }
  const std::vector<Device>& devices() const noexcept { return devices_; }
  KernelLibrary& kernels() noexcept { return *kernels_; }
  /// Null unless tracing.
  Trace* trace() noexcept { return trace_.get(); }
  ContextCounters& counters() noexcept { return counters_; }
  void log(LogLevel level, std::string_view message) const {
    if (log_) log_(level, message);
  }

 private:
  Context(_cl_context* adopted, std::vector<Device> devices, ContextOptions options);

  _cl_context* handle_;
  std::vector<Device> devices_;
  LogCallback log_;
  ContextCounters counters_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<KernelLibrary> kernels_;
};

}  // namespace moecl
