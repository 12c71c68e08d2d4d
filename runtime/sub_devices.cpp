#include <moecl/sub_devices.hpp>

#include <CL/cl.h>

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {
namespace {

bool offers(const Device& device, cl_device_partition_property way) {
  std::size_t size = 0;
  check_cl(clGetDeviceInfo(device.handle, CL_DEVICE_PARTITION_PROPERTIES, 0, nullptr, &size), "clGetDeviceInfo");
  std::vector<cl_device_partition_property> ways(size / sizeof(cl_device_partition_property));
  if (!ways.empty())
    check_cl(clGetDeviceInfo(device.handle, CL_DEVICE_PARTITION_PROPERTIES, size, ways.data(), nullptr),
             "clGetDeviceInfo");
  return std::find(ways.begin(), ways.end(), way) != ways.end();
}

}  // namespace

std::string SubDevices::reject(const Device& device, std::uint32_t parts) {
  require(parts >= 1, "sub-devices: {} parts", parts);
  if (!offers(device, CL_DEVICE_PARTITION_BY_COUNTS))
    return fmt::format("'{}' offers no sub-devices by counts of compute units", device.caps.name);
  cl_uint most = 0;
  check_cl(clGetDeviceInfo(device.handle, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof(most), &most, nullptr),
           "clGetDeviceInfo");
  if (parts > std::min(most, device.caps.compute_units))
    return fmt::format("'{}' has {} compute units and at most {} sub-devices, {} are wanted", device.caps.name,
                       device.caps.compute_units, most, parts);
  return {};
}

// After the delegated constructor the destructor runs if the rest throws: it releases the sub-devices made so far.
SubDevices::SubDevices(const Device& device, std::uint32_t parts) : SubDevices() {
  if (const std::string why = reject(device, parts); !why.empty()) fail(ErrorCode::unsupported, "{}", why);
  std::vector<cl_device_partition_property> counts = {CL_DEVICE_PARTITION_BY_COUNTS};
  const std::uint32_t units = device.caps.compute_units;
  for (std::uint32_t part = 0; part < parts; ++part) counts.push_back(units / parts + (part < units % parts ? 1 : 0));
  counts.insert(counts.end(), {CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0});
  std::vector<cl_device_id> handles(parts);
  devices_.reserve(parts);
  check_cl(clCreateSubDevices(device.handle, counts.data(), parts, handles.data(), nullptr), "clCreateSubDevices");
  for (cl_device_id handle : handles) devices_.push_back({device.platform, handle, {}});
  for (Device& part : devices_) part.caps = query_caps(part.platform, part.handle);
}

SubDevices::~SubDevices() {
  for (const Device& device : devices_) clReleaseDevice(device.handle);
}

}  // namespace moecl
