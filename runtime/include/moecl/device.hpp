#pragma once
#include <moecl/cl_handles.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// What OpenCL says that the device is.
enum class DeviceType : std::uint8_t { cpu, gpu, accelerator, other };

/// "cpu", "gpu", "accelerator", "other"
const char* name(DeviceType type) noexcept;

/// What a table of measurements chose for a device.
struct TunedChoice {
  std::string name;  ///< "combine/lanes"
  std::int64_t value = 0;
  std::string origin;  ///< for people: which entry of which table
};

/// What all tables chose: the first of a name decides.
struct Tuning {
  std::vector<TunedChoice> choices;
  std::vector<std::string> problems;  ///< why a table was ignored
};

/// Variants of kernels whose programs a driver did not survive compiling, or refused: operators choose others.
///
/// Threads: safe.
class FailedVariants {
 public:
  /// A variant that fails for more than one reason keeps the first.
  void add(std::string variant, std::string why);
  /// Whether operators are to choose another.
  bool contains(std::string_view variant) const;
  std::size_t size() const noexcept { return size_; }

 private:
  std::atomic<std::size_t> size_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> why_;
};

/// What a driver says it offers, with its known quirks applied.
struct DeviceCaps {
  std::string platform_name, platform_version, name, vendor, driver_version, opencl_c_version;
  DeviceType type = DeviceType::other;
  std::uint64_t global_mem_bytes = 0, max_alloc_bytes = 0, local_mem_bytes = 0;
  std::uint32_t compute_units = 0, preferred_float_width = 1, mem_base_align_bytes = 1;
  std::size_t max_work_group_size = 0;
  /// Cache of global memory, as the driver says: on NVIDIA devices that of the compute units alone.
  std::uint64_t cache_bytes = 0;
  /// What a work-group may have as arrays in its kernel; more than local_mem_bytes on NVIDIA devices.
  std::uint64_t static_local_mem_bytes = 0;
  /// 10 * major + minor on NVIDIA devices, else 0: what PTX inside a kernel may use.
  std::uint32_t nv_compute_capability = 0;
  /// Programs for sm_90a build as well. False until a context has tried.
  bool nv_sm90a = false;
  bool has_fp16 = false, has_fp64 = false, has_subgroups = false, has_integer_dot = false;
  /// Instruction sets of x86 that kernels may take there: what the host's cpuid says, where the device is the host's
  /// CPU through PoCL, less what MOECL_CPU_FEATURES hides. A kernel that used others would end the process. AVX2 stands
  /// for FMA and F16C too; AVX-VNNI is vpdpbusd in 8 lanes.
  bool has_avx2 = false, has_avx_vnni = false, has_avx512 = false;
  /// Dot products of AVX-512 (vpdpbusd, vdpbf16ps).
  bool has_avx512_vnni = false, has_avx512_bf16 = false;
  /// Tile registers of AMX, for i8 and bf16 (tdpbssd, tdpbf16ps): reading the capabilities asks Linux for
  /// them, for the whole process (arch_prctl), after which signal stacks must have room for their 8 KiB.
  bool has_amx_int8 = false, has_amx_bf16 = false;
  /// Arm's dot products of i8 (sdot) and products of 2 x 8 by 8 x 2 (smmla), or of 2 x 4 by 4 x 2 of bf16 (bfmmla), as
  /// Linux says, where the device is the host's CPU through PoCL.
  bool has_neon_dot = false, has_neon_i8mm = false, has_neon_bf16 = false;
  /// f32 division and square root round as IEEE 754 says (all kernels are then built so); else OpenCL allows 2.5 ulp.
  bool correctly_rounded_divide = false;
  /// False where event profiling returns no usable durations (Mesa rusticl 22.3): traces then carry host times.
  bool event_times_usable = true;
  /// False where a failed command fails only its own event, neither finish nor what follows it (Mesa rusticl 22.3).
  bool finish_reports_failures = true;
  /// Human-readable notes on deviations that moecl works around.
  std::vector<std::string> quirks;
};

/// One OpenCL device, and what operators choose by there. A value: owns no device (root devices are never released).
struct Device {
  _cl_platform_id* platform = nullptr;
  _cl_device_id* handle = nullptr;
  DeviceCaps caps;  ///< what it is
  /// What operators choose there instead of their defaults. Empty until a context has asked ContextOptions::tuning.
  Tuning tuning = {};
  /// Copies share it. A context begins with its own, which is empty.
  std::shared_ptr<FailedVariants> failed_variants = std::make_shared<FailedVariants>();
};

/// A device that was found, with the reason it cannot be used.
struct DeviceReport {
  Device device;
  std::string refused;  ///< empty when the device is usable
};

/// Every device of every platform, in the ICD loader's order, usable or not; platforms without a device are reported
/// as one refused entry with an empty device name.
///
/// Empty: no platform at all gives an empty list.
std::vector<DeviceReport> enumerate_devices();

/// Usable devices whose platform and device names contain the given texts (case-insensitive, empty matches all).
///
/// Errors: no_device  none matches; the message lists what was found and why each was refused
std::vector<Device> select_devices(std::string_view platform_contains = {}, std::string_view device_contains = {});

/// Capabilities of a device handle, as enumeration would report them.
DeviceCaps query_caps(_cl_platform_id* platform, _cl_device_id* device);

}  // namespace moecl
