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

}  // namespace

StreamView stream() {
  // Never destroyed: OpenCL drivers unload their own globals at exit in an order of their own.
  static const Opened* opened = [] {
    auto devices = select_devices(environment("MOECL_PLATFORM"), environment("MOECL_DEVICE"));
    devices.resize(1);
    auto context = Context::create(std::move(devices));
    Stream queue(*context);
    return new Opened{std::move(context), std::move(queue)};
  }();
  return opened->stream;
}

}  // namespace moecl::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const moecl::DeviceCaps& caps = moecl::bench::stream().device->caps;
  benchmark::AddCustomContext("platform", caps.platform_name);
  benchmark::AddCustomContext("device", caps.name);
  benchmark::AddCustomContext("driver", caps.driver_version);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
