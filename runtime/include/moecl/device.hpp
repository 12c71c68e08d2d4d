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

/// The type of a device, as OpenCL reports it.
enum class DeviceType : std::uint8_t { cpu, gpu, accelerator, other };

/// "cpu", "gpu", "accelerator", "other"
const char* name(DeviceType type) noexcept;

/// What a table of measurements chose for a device.
struct TunedChoice {
  std::string name;  ///< "combine/lanes"
  std::int64_t value = 0;
  std::string origin;  ///< for people: which entry of which table
};

/// The choices of all tables. Of several with one name the first decides.
struct Tuning {
  std::vector<TunedChoice> choices;
  std::vector<std::string> problems;  ///< why a table was ignored
};

/// Kernel variants whose programs crashed the driver's compiler or were refused by it: operators choose others.
///
/// Threads: safe.
class FailedVariants {
 public:
  /// A variant that fails for more than one reason keeps the first.
  void add(std::string variant, std::string why);
  /// Whether operators must choose another variant.
  bool contains(std::string_view variant) const;
  std::size_t size() const noexcept { return size_; }

 private:
  std::atomic<std::size_t> size_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> why_;
};

/// What a driver reports, corrected for its known quirks.
struct DeviceCaps {
  std::string platform_name, platform_version, name, vendor, driver_version, opencl_c_version;
  DeviceType type = DeviceType::other;
  std::uint64_t global_mem_bytes = 0, max_alloc_bytes = 0, local_mem_bytes = 0;
  std::uint32_t compute_units = 0, preferred_float_width = 1, mem_base_align_bytes = 1;
  std::size_t max_work_group_size = 0;
  /// Cache of global memory, as the driver reports it: on NVIDIA devices only the cache of the compute units.
  std::uint64_t cache_bytes = 0;
  /// Most local memory for arrays declared in a kernel; more than local_mem_bytes on NVIDIA devices.
  std::uint64_t static_local_mem_bytes = 0;
  /// 10 * major + minor on NVIDIA devices, else 0. It decides which PTX a kernel may contain.
  std::uint32_t nv_compute_capability = 0;
  /// Whether programs for sm_90a build, too. False until a context has tried.
  bool nv_sm90a = false;
  bool has_fp16 = false, has_fp64 = false, has_subgroups = false, has_integer_dot = false;
  /// x86 instruction sets that kernels may use, where the device is the host's CPU through PoCL: those that cpuid
  /// reports, less those that MOECL_CPU_FEATURES hides. A kernel that used others would end the process. AVX2 implies
  /// FMA and F16C; AVX-VNNI is vpdpbusd in 8 lanes.
  bool has_avx2 = false, has_avx_vnni = false, has_avx512 = false;
  /// AVX-512 dot products (vpdpbusd, vdpbf16ps).
  bool has_avx512_vnni = false, has_avx512_bf16 = false;
  /// AMX tile products of i8 and bf16 (tdpbssd, tdpbf16ps). Reading the capabilities requests the tile registers from
  /// Linux for the whole process (arch_prctl). After that, signal stacks must have room for their 8 KiB.
  bool has_amx_int8 = false, has_amx_bf16 = false;
  /// Arm: dot products of i8 (sdot), and products of 2 x 8 by 8 x 2 i8 (smmla) or 2 x 4 by 4 x 2 bf16 (bfmmla), as
  /// Linux reports them. Set only where the device is the host's CPU through PoCL.
  bool has_neon_dot = false, has_neon_i8mm = false, has_neon_bf16 = false;
  /// Whether f32 division and square root round as IEEE 754 says (all kernels are then built so); else OpenCL allows
  /// 2.5 ulp.
  bool correctly_rounded_divide = false;
  /// False where event profiling returns no usable durations (Mesa rusticl 22.3): traces then carry host times.
  bool event_times_usable = true;
  /// False where a failed command fails only its own event, but neither finish nor later commands (Mesa rusticl 22.3).
  bool finish_reports_failures = true;
  /// Human-readable notes on deviations that moecl works around.
  std::vector<std::string> quirks;
};

/// One OpenCL device, and what its operators' choices depend on. A value: owns no device (root devices are never
/// released).
struct Device {
  _cl_platform_id* platform = nullptr;
  _cl_device_id* handle = nullptr;
  DeviceCaps caps;  ///< what it is
  /// Choices that replace the operators' defaults. Empty until a context has called ContextOptions::tuning.
  Tuning tuning = {};
  /// Shared by copies of this Device. Each context starts with an empty one of its own.
  std::shared_ptr<FailedVariants> failed_variants = std::make_shared<FailedVariants>();
};

/// A device that was found, with the reason if it cannot be used.
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
