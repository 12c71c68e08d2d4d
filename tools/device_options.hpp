#pragma once
// The options --platform and --device, and the context that they select.
#include <moecl/context.hpp>
#include <moecl/stream.hpp>

#include <CLI/CLI.hpp>

#include <memory>
#include <string>

namespace moecl::cli {

struct DeviceOptions {
  std::string platform, device;

  void add_to(CLI::App& command);
  /// A context that can trace, on the first usable device that matches. Errors: no_device
  std::unique_ptr<Context> open() const;
  /// All usable devices that match, of every platform named. Errors: no_device
  std::vector<Device> select() const;
  /// A context on these devices that can trace.
  std::unique_ptr<Context> open(std::vector<Device> devices) const;
};

/// The first usable device with `part` in its name, else the first device of the first platform with `part` in its
/// name.
/// Errors: no_device
Device device_named(const std::string& part);

}  // namespace moecl::cli
