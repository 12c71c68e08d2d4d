#include "tools/device_options.hpp"

#include <moecl/tuned_choices.hpp>

#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "runtime/log_spdlog.hpp"
#include "tools/printable.hpp"

namespace moecl::cli {
namespace {

/// Log lines go to stderr; MOECL_LOG says from which level on. What several contexts of a command warn of is told once.
LogCallback log_to_stderr() {
  auto logger = std::make_shared<spdlog::logger>("moecl", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::trace);
  logger->set_pattern("moecl: %l: %v");
  return [print = log_to(std::move(logger))](LogLevel level, std::string_view message) {
    static std::mutex mutex;
    static std::set<std::string, std::less<>> told;
    const std::lock_guard lock(mutex);
    if (level != LogLevel::warning || told.emplace(message).second) print(level, printable(message));
  };
}

}  // namespace

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--platform", platform, "OpenCL platform, by part of its name; ranks may span several: A,B")
      ->type_name("TEXT");
  command.add_option("--device", device, "OpenCL device, by part of its name")->type_name("TEXT");
}

std::unique_ptr<Context> DeviceOptions::open() const {
  std::vector<Device> devices = select();
  devices.resize(1);
  return open(std::move(devices));
}

std::vector<Device> DeviceOptions::select() const {
  std::vector<Device> all;
  // "a,b" names two platforms: a group of ranks may span both.
  for (std::size_t begin = 0; begin <= platform.size();) {
    const std::size_t comma = std::min(platform.find(',', begin), platform.size());
    std::vector<Device> some = select_devices(platform.substr(begin, comma - begin), device);
    // Without a name the first platform that has a device is meant.
    if (platform.empty())
      some.erase(std::remove_if(some.begin(), some.end(),
                                [&](const Device& d) { return d.platform != some.front().platform; }),
                 some.end());
    all.insert(all.end(), some.begin(), some.end());
    begin = comma + 1;
  }
  return all;
}

std::unique_ptr<Context> DeviceOptions::open(std::vector<Device> devices) const {
  ContextOptions options;
  options.log = log_to_stderr();
  options.trace = true;
  options.tuning = tuning::read;
  return Context::create(std::move(devices), std::move(options));
}

}  // namespace moecl::cli
