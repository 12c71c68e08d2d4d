#include "tests/devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace moecl::test {
namespace {

std::vector<std::unique_ptr<TestDevice>> open_devices() {
  std::vector<std::unique_ptr<TestDevice>> list;
  for (const DeviceReport& report : enumerate_devices()) {
    if (!report.refused.empty()) continue;
    auto device = std::make_unique<TestDevice>();
    device->context = Context::create({report.device});
    device->stream = Stream(*device->context);
    device->label = report.device.caps.platform_name + "_" + std::to_string(list.size());
    std::replace_if(
        device->label.begin(), device->label.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    list.push_back(std::move(device));
  }
  if (list.empty()) {
    std::fputs("no usable OpenCL device: the tests cannot run\n", stderr);
    std::exit(1);
  }
  return list;
}

}  // namespace

const std::vector<std::unique_ptr<TestDevice>>& devices() {
  // Never destroyed: OpenCL drivers unload their own globals at exit in an order of their own.
  static const auto* list = new std::vector<std::unique_ptr<TestDevice>>(open_devices());
  return *list;
}

std::vector<unsigned char> GuardedTensor::bytes() const {
  DeviceTensor::Content content = tensor_.content(device_.stream);
  if (!content.damage.empty()) ADD_FAILURE() << content.damage;
  return std::move(content.bytes);
}

GuardedTensor upload(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                     const std::vector<double>& values) {
  return GuardedTensor(device, dtype, shape, encode(dtype, values));
}

}  // namespace moecl::test
