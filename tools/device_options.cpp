#include "tools/device_options.hpp"

#include <moecl/error.hpp>
#include <moecl/tuned_choices.hpp>

#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "runtime/log_spdlog.hpp"
#include "tools/nearest.hpp"
#include "tools/printable.hpp"

namespace moecl::cli {
namespace {

/// Log lines go to stderr, from the level that MOECL_LOG sets. A warning that several contexts give is printed once.
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

/// Adds the words between spaces and dashes.
void add_words(const std::string& name, std::vector<std::string>& to) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find_first_of(" -", begin), name.size());
    if (end > begin) to.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// As select_devices, but the error also suggests words of platform and device names that were perhaps meant.
std::vector<Device> select_near(const std::string& platform, const std::string& device) {
  try {
    return select_devices(platform, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
    std::vector<std::string> platforms, devices;
    for (const DeviceReport& report : enumerate_devices()) {
      add_words(report.device.caps.platform_name, platforms);
      add_words(report.device.caps.name, devices);
    }
    throw Error(error.code(), error.what() + did_you_mean(platform, platforms) + did_you_mean(device, devices));
  }
}

}  // namespace

Device device_named(const std::string& part) {
  try {
    return select_devices("", part).front();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::no_device) throw;
  }
  return select_near(part, "").front();
}

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
    std::vector<Device> some = select_near(platform.substr(begin, comma - begin), device);
    // Without a name, take the first platform that has a device.
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
