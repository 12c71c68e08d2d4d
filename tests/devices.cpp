#include "tests/devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace moecl::test {
namespace {

constexpr std::uint64_t guard_bytes = 256;
constexpr std::uint32_t poison = 0x7fc17fc1;

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

GuardedTensor::GuardedTensor(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape)
    : device_(device) {
  std::uint64_t count = 1;
  for (std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
  const std::uint64_t size = count * size_bytes(dtype);
  const std::uint64_t start = guard_bytes + size_bytes(dtype);
  buffer_ = Buffer(*device.context, (start + size + guard_bytes + 3) / 4 * 4);
  enqueue_fill(device.stream, buffer_.view(), poison);
  view_ = TensorView(buffer_.view().slice(start, size), dtype, shape);
}

std::vector<double> GuardedTensor::values() const { return decode(view_.dtype, read<unsigned char>()); }

void GuardedTensor::check_guards() const {
  std::vector<unsigned char> bytes(buffer_.size_bytes());
  read_blocking(device_.stream, buffer_.view(), bytes.data(), bytes.size());
  const std::uint64_t begin = view_.buffer.offset_bytes, end = begin + view_.buffer.size_bytes;
  for (std::uint64_t i = 0; i < bytes.size(); ++i) {
    const auto expected = static_cast<unsigned char>(poison >> (8 * (i % 4)));
    if ((i < begin || i >= end) && bytes[i] != expected) {
      ADD_FAILURE() << "byte " << static_cast<std::int64_t>(i - begin) << " of " << view_.describe()
                    << " was written outside the view";
      return;
    }
  }
}

GuardedTensor upload(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                     const std::vector<double>& values) {
  return GuardedTensor(device, dtype, shape, encode(dtype, values));
}

}  // namespace moecl::test
