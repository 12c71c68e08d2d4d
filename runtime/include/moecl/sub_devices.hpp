#pragma once
#include <moecl/device.hpp>

#include <string>
#include <vector>

namespace moecl {

/// Parts of one device, each with compute units of its own, for ranks that would otherwise share it.
///
/// Lifetime: outlives every context that is made of them.
class SubDevices {
 public:
  /// Why the device cannot be divided so; empty when it can.
  static std::string reject(const Device& device, std::uint32_t parts);
  /// As even parts as its compute units allow, the remainder to the first.
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
