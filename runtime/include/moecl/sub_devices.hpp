#pragma once
#include <moecl/device.hpp>

#include <string>
#include <vector>

namespace moecl {

/// Sub-devices of one device, each with compute units of its own, for ranks that would otherwise share the device.
///
/// Lifetime: outlives every context that is made of them.
class SubDevices {
 public:
  /// Why the device cannot be divided into that many parts; empty when it can.
  static std::string reject(const Device& device, std::uint32_t parts);
  /// Divides the compute units evenly; each of the first parts gets one more if there is a remainder.
  /// Errors: unsupported  `reject` says why; device_error  the driver does not do what it offers
  SubDevices(const Device& device, std::uint32_t parts);
  SubDevices(SubDevices&&) noexcept = default;
  SubDevices& operator=(SubDevices&&) = delete;
  ~SubDevices();

  const std::vector<Device>& devices() const noexcept { return devices_; }

 private:
  SubDevices() = default;

  std::vector<Device> devices_;
};

}  // namespace moecl
