#include "bench/device.hpp"

#include <moecl/device.hpp>
#include <moecl/tuned_choices.hpp>

#include <cstdlib>
#include <deque>

namespace moecl::bench {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Opened {
  std::unique_ptr<Context> context;
  Stream stream;
  /// The last copy replaces the context's device. Each tuning has its own, as a context keeps plans by device address.
  std::deque<Device> tuned;
};

/// Never destroyed: at exit, OpenCL drivers unload their own globals in an order of their own.
Opened*& opened() {
  static Opened* device = nullptr;
  return device;
}

}  // namespace

void use(std::unique_ptr<Context> context) {
  Stream queue(*context, 0, false);
  opened() = new Opened{std::move(context), std::move(queue), {}};
}

void use(Tuning tuning) {
  opened()->tuned.push_back(*stream().device);
  opened()->tuned.back().tuning = std::move(tuning);
}

StreamView stream() {
  if (opened() == nullptr) {
    auto devices = select_devices(environment("MOECL_PLATFORM"), environment("MOECL_DEVICE"));
    devices.resize(1);
    ContextOptions options;
    options.trace = true;
    options.tuning = tuning::read;
    use(Context::create(std::move(devices), std::move(options)));
  }
  StreamView view = opened()->stream;
  if (!opened()->tuned.empty()) view.device = &opened()->tuned.back();
  return view;
}

}  // namespace moecl::bench
