#include <moecl/context.hpp>
#include <moecl/trace.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"
#include "runtime/kernel_library.hpp"

namespace moecl {

Context::Context(cl_context adopted, std::vector<Device> devices, ContextOptions options)
    : handle_(adopted),
      devices_(std::move(devices)),
      log_(std::move(options.log)),
      trace_(options.trace ? std::make_unique<Trace>() : nullptr),
      kernels_(std::make_unique<KernelLibrary>(*this, options.disk_cache, options.cache_dir)) {}

Context::~Context() {
  trace_.reset();
  kernels_.reset();
  clReleaseContext(handle_);
}

std::unique_ptr<Context> Context::create(std::vector<Device> devices, ContextOptions options) {
  require(!devices.empty(), "context: no device given");
  std::vector<cl_device_id> handles;
  for (const Device& device : devices) {
    require(device.platform == devices.front().platform, "context: devices of platforms '{}' and '{}' cannot share one",
            devices.front().caps.platform_name, device.caps.platform_name);
    handles.push_back(device.handle);
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(devices.front().platform), 0};
  cl_int status = CL_SUCCESS;
  cl_context handle =
      clCreateContext(properties, static_cast<cl_uint>(handles.size()), handles.data(), nullptr, nullptr, &status);
  check_cl(status, "clCreateContext");
  return std::unique_ptr<Context>(new Context(handle, std::move(devices), std::move(options)));
}

std::unique_ptr<Context> Context::borrow(cl_context handle, ContextOptions options) {
  require(handle != nullptr, "context: the cl_context is null");
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
  return std::unique_ptr<Context>(new Context(handle, std::move(devices), std::move(options)));
}

}  // namespace moecl
