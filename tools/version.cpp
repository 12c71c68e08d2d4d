#include "tools/version.hpp"

#include <moecl/device.hpp>
#include <moecl/moecl.h>
#include <moecl/opencl.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/printable.hpp"

namespace moecl::cli {
namespace {

/// What the ICD loader tells of itself; Debian's headers lack these names. Source: the extension cl_loader_info
enum LoaderInfo : cl_uint { opencl_version = 1, loader_version = 2, loader_name = 3, loader_vendor = 4 };

std::string loader() {
  using Query = cl_int(CL_API_CALL*)(cl_uint what, std::size_t size, void* value, std::size_t* size_of_value);
  const auto query = reinterpret_cast<Query>(clGetExtensionFunctionAddress("clGetICDLoaderInfoOCLICD"));
  if (query == nullptr) return "one that does not say which it is";
  const auto text = [query](LoaderInfo what) {
    std::size_t size = 0;
    if (query(what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return std::string("-");
    std::string value(size, '\0');
    if (query(what, size, value.data(), nullptr) != CL_SUCCESS) return std::string("-");
    return printable(value.c_str());
  };
  return fmt::format("{} {} of {}, {}", text(loader_name), text(loader_version), text(loader_vendor),
                     text(opencl_version));
}

}  // namespace

std::string version() {
  std::string text = fmt::format("moecl {} (commit {})\nOpenCL loader: {}", MOECL_VERSION, moecl_commit(), loader());
  std::vector<std::string> drivers;
  for (const DeviceReport& report : enumerate_devices()) {
    const DeviceCaps& caps = report.device.caps;
    std::string driver = fmt::format("\ndriver: {} {}", printable(caps.platform_name),
                                     caps.driver_version.empty() ? "without a device" : printable(caps.driver_version));
    if (std::find(drivers.begin(), drivers.end(), driver) != drivers.end()) continue;
    text += driver;
    drivers.push_back(std::move(driver));
  }
  return text + (drivers.empty() ? "\nno driver" : "");
}

}  // namespace moecl::cli
