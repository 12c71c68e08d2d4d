#include <moecl/device.hpp>

#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "runtime/check.hpp"
#include "runtime/cpu_features.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/platforms.hpp"

namespace moecl {
namespace {

std::string text(cl_platform_id platform, cl_platform_info what) {
  std::size_t size = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string value(size, '\0');
  check_cl(clGetPlatformInfo(platform, what, size, value.data(), nullptr), "clGetPlatformInfo");
  value.resize(size - 1);
  return value;
}

std::string text(cl_device_id device, cl_device_info what) {
  std::size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string value(size, '\0');
  check_cl(clGetDeviceInfo(device, what, size, value.data(), nullptr), "clGetDeviceInfo");
  value.resize(size - 1);
  return value;
}

template <class T>
T number(cl_device_id device, cl_device_info what) {
  T value{};
  check_cl(clGetDeviceInfo(device, what, sizeof(value), &value, nullptr), "clGetDeviceInfo");
  return value;
}

bool contains_ignoring_case(std::string_view in, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(in.begin(), in.end(), part.begin(), part.end(), same) != in.end();
}

DeviceType type_of(cl_device_type type) {
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return DeviceType::gpu;
  if ((type & CL_DEVICE_TYPE_CPU) != 0) return DeviceType::cpu;
  if ((type & CL_DEVICE_TYPE_ACCELERATOR) != 0) return DeviceType::accelerator;
  return DeviceType::other;
}

/// NVIDIA's driver reports 48 KiB of local memory, which is the limit of dynamic allocations. It accepts static arrays
/// up to the hardware's limit.
/// Source: CUDA C++ Programming Guide, technical specifications by compute capability (maximum of a thread block).
std::uint64_t nv_static_local_bytes(std::uint32_t compute_capability) {
  if (compute_capability >= 90) return 227 * 1024;
  if (compute_capability == 80 || compute_capability == 87) return 163 * 1024;
  return compute_capability >= 86 ? 99 * 1024 : 48 * 1024;
}

/// Deviations seen on real drivers; each is worked around where the named field is read.
void apply_quirks(DeviceCaps& caps) {
  if (contains_ignoring_case(caps.platform_name, "rusticl")) {
    caps.event_times_usable = false;
    caps.quirks.emplace_back("event profiling returns equal start and end times; traces use host times");
    if (std::atoi(caps.driver_version.c_str()) < 25) {
      caps.finish_reports_failures = false;
      caps.quirks.emplace_back("a failed command fails neither finish nor the commands after it, only its own event");
    }
  }
}

/// Whether the device compiles for the CPU that this process runs on.
bool is_host_of_pocl(const DeviceCaps& caps) {
  const auto named = [&](const char* driver) { return caps.name.rfind(driver, 0) == 0; };
  return caps.type == DeviceType::cpu && caps.platform_name == "Portable Computing Language" &&
         (named("pthread") || named("basic") || named("cpu"));
}

void add_cpu_features(DeviceCaps& caps) {
  const CpuFeatures cpu = cpu_features(caps.preferred_float_width);
  caps.has_avx2 = cpu.avx2, caps.has_avx_vnni = cpu.avx_vnni, caps.has_avx512 = cpu.avx512;
  caps.has_avx512_vnni = cpu.avx512_vnni, caps.has_avx512_bf16 = cpu.avx512_bf16;
  caps.has_amx_int8 = cpu.amx_int8, caps.has_amx_bf16 = cpu.amx_bf16;
  caps.has_neon_dot = cpu.neon_dot, caps.has_neon_i8mm = cpu.neon_i8mm, caps.has_neon_bf16 = cpu.neon_bf16;
  if (cpu.hidden.empty()) return;
  if (!cpu.avx512) caps.preferred_float_width = std::min(caps.preferred_float_width, 8U);
  caps.quirks.push_back("MOECL_CPU_FEATURES hides " + cpu.hidden);
}

/// Why the T0 kernels cannot run on the device; empty when they can.
std::string reason_to_refuse(cl_device_id device, const DeviceCaps& caps) {
  if (number<cl_bool>(device, CL_DEVICE_AVAILABLE) == CL_FALSE) return "the driver says it is not available";
  if (number<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) return "it has no OpenCL C compiler";
  if (number<cl_bool>(device, CL_DEVICE_ENDIAN_LITTLE) == CL_FALSE) return "it is big-endian";
  int major = 0, minor = 0;
  if (std::sscanf(caps.opencl_c_version.c_str(), "OpenCL C %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
    return fmt::format("it offers '{}', OpenCL C 1.2 is needed", caps.opencl_c_version);
  if (caps.max_work_group_size < 64)
    return fmt::format("its largest work-group is {}, 64 are needed", caps.max_work_group_size);
  return {};
}

}  // namespace

bool has_extension(cl_device_id device, std::string_view extension) {
  return (" " + text(device, CL_DEVICE_EXTENSIONS) + " ").find(fmt::format(" {} ", extension)) != std::string::npos;
}

void FailedVariants::add(std::string variant, std::string why) {
  const std::lock_guard lock(mutex_);
  why_.emplace(std::move(variant), std::move(why));
  size_ = why_.size();
}

bool FailedVariants::contains(std::string_view variant) const {
  if (size_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return why_.find(variant) != why_.end();
}

std::vector<cl_platform_id> platforms() {
  enter_driver_process();
  cl_uint count = 0;
  // ICD loaders return an error (CL_PLATFORM_NOT_FOUND_KHR) when no platform is installed.
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> list(count);
  if (count != 0) check_cl(clGetPlatformIDs(count, list.data(), nullptr), "clGetPlatformIDs");
  return list;
}

std::vector<cl_device_id> devices_of(cl_platform_id platform) {
  cl_uint count = 0;
  const cl_int status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  std::vector<cl_device_id> devices(status == CL_SUCCESS ? count : 0);
  if (!devices.empty())
    check_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "clGetDeviceIDs");
  return devices;
}

const char* name(DeviceType type) noexcept {
  switch (type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::gpu:
      return "gpu";
    case DeviceType::accelerator:
      return "accelerator";
    case DeviceType::other:
      break;
  }
  return "other";
}

DeviceCaps query_caps(cl_platform_id platform, cl_device_id device) {
  DeviceCaps caps;
  caps.platform_name = text(platform, CL_PLATFORM_NAME);
  caps.platform_version = text(platform, CL_PLATFORM_VERSION);
  caps.name = text(device, CL_DEVICE_NAME);
  caps.vendor = text(device, CL_DEVICE_VENDOR);
  caps.driver_version = text(device, CL_DRIVER_VERSION);
  caps.opencl_c_version = text(device, CL_DEVICE_OPENCL_C_VERSION);
  caps.type = type_of(number<cl_device_type>(device, CL_DEVICE_TYPE));
  caps.global_mem_bytes = number<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  caps.cache_bytes = number<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  caps.max_alloc_bytes = number<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  caps.local_mem_bytes = number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  caps.compute_units = number<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  caps.preferred_float_width = std::max(1U, number<cl_uint>(device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT));
  caps.mem_base_align_bytes = number<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  caps.max_work_group_size = number<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  const auto has = [&](const char* extension) { return has_extension(device, extension); };
  caps.has_fp16 = has("cl_khr_fp16");
  caps.has_fp64 = has("cl_khr_fp64");
  caps.has_subgroups = has("cl_khr_subgroups");
  caps.correctly_rounded_divide =
      (number<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  caps.has_integer_dot = has("cl_khr_integer_dot_product");
  caps.static_local_mem_bytes = caps.local_mem_bytes;
  if (has("cl_nv_device_attribute_query")) {
    caps.nv_compute_capability = number<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV) * 10 +
                                 number<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
    caps.static_local_mem_bytes = std::max(caps.local_mem_bytes, nv_static_local_bytes(caps.nv_compute_capability));
  }
  apply_quirks(caps);
  if (is_host_of_pocl(caps)) add_cpu_features(caps);
  return caps;
}

std::vector<DeviceReport> enumerate_devices() {
  std::vector<DeviceReport> found;
  for (cl_platform_id platform : platforms()) {
    const std::vector<cl_device_id> devices = devices_of(platform);
    if (devices.empty()) {
      DeviceReport report;
      report.device.platform = platform;
      report.device.caps.platform_name = text(platform, CL_PLATFORM_NAME);
      report.refused = "the platform has no device";
      found.push_back(std::move(report));
    }
    for (cl_device_id device : devices) {
      DeviceReport report{{platform, device, query_caps(platform, device)}, {}};
      report.refused = reason_to_refuse(device, report.device.caps);
      found.push_back(std::move(report));
    }
  }
  return found;
}

std::vector<Device> select_devices(std::string_view platform_contains, std::string_view device_contains) {
  std::vector<Device> chosen;
  std::string seen;
  for (DeviceReport& report : enumerate_devices()) {
    const DeviceCaps& caps = report.device.caps;
    seen += fmt::format("\n  {} / {}: {}", caps.platform_name, caps.name.empty() ? "-" : caps.name,
                        report.refused.empty() ? "usable" : report.refused);
    if (report.refused.empty() && contains_ignoring_case(caps.platform_name, platform_contains) &&
        contains_ignoring_case(caps.name, device_contains))
      chosen.push_back(std::move(report.device));
  }
  if (chosen.empty())
    fail(ErrorCode::no_device, "no usable OpenCL device matches platform '{}', device '{}'; found:{}",
         platform_contains, device_contains,
         seen.empty() ? " no OpenCL platform at all (is a driver such as pocl-opencl-icd installed?)" : seen);
  return chosen;
}

}  // namespace moecl
