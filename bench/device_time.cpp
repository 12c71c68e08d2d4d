#include "bench/device_time.hpp"

#include <moecl/device.hpp>

#include <cstdlib>

namespace moecl::bench {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Opened {
  std::unique_ptr<Context> context;
  Stream stream;
};

/// Never destroyed: OpenCL drivers unload their own globals at exit in an order of their own.
Opened*& opened() {
  static Opened* device = nullptr;
  return device;
}

}  // namespace

void use(std::unique_ptr<Context> context) {
  Stream queue(*context, 0, false);
  opened() = new Opened{std::move(context), std::move(queue)};
}

StreamView stream() {
  if (opened() == nullptr) {
    auto devices = select_devices(environment("MOECL_PLATFORM"), environment("MOECL_DEVICE"));
    devices.resize(1);
    ContextOptions options;
    options.trace = true;
    use(Context::create(std::move(devices), std::move(options)));
  }
  return opened()->stream;
}

}  // namespace moecl::bench
