#include "tools/device_options.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include "runtime/log_spdlog.hpp"

namespace moecl::cli {
namespace {

/// Log lines go to stderr; MOECL_LOG says from which level on.
LogCallback log_to_stderr() {
  auto logger = std::make_shared<spdlog::logger>("moecl", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::trace);
  logger->set_pattern("moecl: %l: %v");
  return log_to(std::move(logger));
}

}  // namespace

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--platform", platform, "OpenCL platform, by part of its name")->type_name("TEXT");
  command.add_option("--device", device, "OpenCL device, by part of its name")->type_name("TEXT");
}

std::unique_ptr<Context> DeviceOptions::open() const {
  std::vector<Device> devices = select_devices(platform, device);
  devices.resize(1);
  ContextOptions options;
  options.log = log_to_stderr();
  options.trace = true;
  return Context::create(std::move(devices), std::move(options));
}

}  // namespace moecl::cli
