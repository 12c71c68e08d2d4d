#include "tools/device_options.hpp"

namespace moecl::cli {

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--platform", platform, "OpenCL platform, by part of its name")->type_name("TEXT");
  command.add_option("--device", device, "OpenCL device, by part of its name")->type_name("TEXT");
}

std::unique_ptr<Context> DeviceOptions::open() const {
  std::vector<Device> devices = select_devices(platform, device);
  devices.resize(1);
  ContextOptions options;
  options.trace = true;
  return Context::create(std::move(devices), std::move(options));
}

}  // namespace moecl::cli
