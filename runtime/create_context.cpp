// Creates and destroys contexts. What a context owns uses the context, so this file is a layer above all that.
#include <moecl/context.hpp>
#include <moecl/environment.hpp>
#include <moecl/trace.hpp>

#include <CL/cl.h>

#include <charconv>

#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/kept_decisions.hpp"
#include "runtime/kernel_library.hpp"
#include "runtime/nv_sm90a.hpp"
#include "runtime/side_queues.hpp"

namespace moecl {
namespace {

bool on_or_off(const char* name, const std::string& value) {
  require(value == "on" || value == "off", "{}: expected on or off, got '{}'", name, value);
  return value == "on";
}

/// Fills what the caller left unset.
ContextOptions with_environment(ContextOptions options) {
  if (!options.log_level) {
    const std::string value = environment("MOECL_LOG").value_or("warning");
    options.log_level = log_level_from_name(value);
    require(options.log_level.has_value(), "MOECL_LOG: expected debug, info, warning, error or off, got '{}'", value);
  }
  if (!options.disk_cache) options.disk_cache = on_or_off("MOECL_CACHE", environment("MOECL_CACHE").value_or("on"));
  if (!options.compile) {
    const std::string value = environment("MOECL_COMPILE").value_or("helper");
    require(value == "helper" || value == "in_process", "MOECL_COMPILE: expected helper or in_process, got '{}'",
            value);
    options.compile = value == "helper" ? Compile::helper : Compile::in_process;
  }
  if (!options.compile_deadline) {
    const std::string value = environment("MOECL_COMPILE_DEADLINE").value_or("300");
    int seconds = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    require(problem == std::errc() && end == value.data() + value.size() && seconds > 0,
            "MOECL_COMPILE_DEADLINE: expected seconds, at least 1, got '{}'", value);
    options.compile_deadline = std::chrono::seconds(seconds);
  }
  if (options.cache_dir.empty()) options.cache_dir = CacheFolder::default_dir();
  return options;
}

}  // namespace

void Context::Release::operator()(cl_context handle) const noexcept { clReleaseContext(handle); }

Context::Context(Handle handle, std::vector<Device> devices, const ContextOptions& options)
    : handle_(std::move(handle)),
      devices_(std::move(devices)),
      log_(options.log),
      log_level_(*options.log_level),
      trace_(options.trace ? std::make_unique<Trace>() : nullptr),
      kernels_(std::make_unique<KernelLibrary>(*this, options)),
      decisions_(std::make_unique<KeptDecisions>()),
      side_queues_(std::make_unique<SideQueues>()) {
  for (Device& device : devices_) {
    device.failed_variants = std::make_shared<FailedVariants>();
    if (device.caps.nv_compute_capability == 90) probe_sm90a(device);
    if (options.tuning) tune(device, options);
  }
}

Context::~Context() { save_programs(); }

void Context::probe_sm90a(Device& device) {
  try {
    kernels_->build(device, nv_sm90a::probe());
    device.caps.nv_sm90a = true;
  } catch (const Error& error) {
    log(LogLevel::warning, fmt::format("no wgmma on '{}': {}", device.caps.name, error.what()));
  }
}

void Context::tune(Device& device, const ContextOptions& options) {
  device.tuning = options.tuning(device.caps);
  for (const std::string& problem : device.tuning.problems) log(LogLevel::warning, problem);
  for (const TunedChoice& choice : device.tuning.choices)
    log(LogLevel::info,
        fmt::format("tuned on '{}': {} {}, {}", device.caps.name, choice.name, choice.value, choice.origin));
}

void Context::save_programs() { kernels_->save(); }

std::unique_ptr<Context> Context::create(std::vector<Device> devices, ContextOptions options) {
  require(!devices.empty(), "context: no device given");
  enter_driver_process();
  options = with_environment(std::move(options));
  std::vector<cl_device_id> handles;
  for (const Device& device : devices) {
    require(device.platform == devices.front().platform, "context: devices of platforms '{}' and '{}' cannot share one",
            devices.front().caps.platform_name, device.caps.platform_name);
    handles.push_back(device.handle);
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(devices.front().platform), 0};
  cl_int status = CL_SUCCESS;
  Handle handle(
      clCreateContext(properties, static_cast<cl_uint>(handles.size()), handles.data(), nullptr, nullptr, &status));
  check_cl(status, "clCreateContext");
  return std::unique_ptr<Context>(new Context(std::move(handle), std::move(devices), options));
}

std::unique_ptr<Context> Context::borrow(cl_context handle, ContextOptions options) {
  require(handle != nullptr, "context: the cl_context is null");
  enter_driver_process();
  options = with_environment(std::move(options));
  std::size_t size = 0;
  check_cl(clGetContextInfo(handle, CL_CONTEXT_DEVICES, 0, nullptr, &size), "clGetContextInfo");
  std::vector<cl_device_id> handles(size / sizeof(cl_device_id));
  check_cl(clGetContextInfo(handle, CL_CONTEXT_DEVICES, size, handles.data(), nullptr), "clGetContextInfo");
  std::vector<Device> devices;
  for (cl_device_id device : handles) {
    cl_platform_id platform = nullptr;
    check_cl(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, nullptr), "clGetDeviceInfo");
    devices.push_back({platform, device, query_caps(platform, device)});
  }
  check_cl(clRetainContext(handle), "clRetainContext");
  return std::unique_ptr<Context>(new Context(Handle(handle), std::move(devices), options));
}

}  // namespace moecl
