#pragma once
// --platform, --device and the context they lead to.
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
};

}  // namespace moecl::cli
