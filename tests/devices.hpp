#pragma once
// Every device test runs on every OpenCL device found. Finding no device is a failure, not a skip.
#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/tensor_view.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/cases/device_memory.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {

/// A device with a context and a stream that live as long as the test program.
struct TestDevice {
  std::unique_ptr<Context> context;
  Stream stream;
  std::string label;  ///< "Portable_Computing_Language_0": fit for a test name

  /// The device record from which operators make their plans.
  const Device& record() const { return context->devices().front(); }
  const DeviceCaps& caps() const { return record().caps; }
};

/// All usable devices; never empty.
const std::vector<std::unique_ptr<TestDevice>>& devices();

/// A tensor with guards: each read also reports writes to the memory before or after the tensor.
class GuardedTensor {
 public:
  GuardedTensor(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape)
      : device_(device), tensor_(device.stream, dtype, shape, Guards::around) {}
  template <class T>
  GuardedTensor(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                const std::vector<T>& values)
      : GuardedTensor(device, dtype, shape) {
    EXPECT_EQ(values.size() * sizeof(T), view().size_bytes()) << view().describe();
    write_blocking(device_.stream, view().buffer, values.data(), view().size_bytes());
  }

  const TensorView& view() const { return tensor_.view; }
  operator TensorView() const { return view(); }
  template <class T>
  std::vector<T> read() const {
    const std::vector<unsigned char> bytes = this->bytes();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  /// Elements as double, whatever the floating or integer storage type.
  std::vector<double> values() const { return decode(view().dtype, bytes()); }
  void check_guards() const { bytes(); }

 private:
  const TestDevice& device_;
  DeviceTensor tensor_;

  std::vector<unsigned char> bytes() const;
};

/// A tensor on the device that holds `values` rounded to `dtype`.
GuardedTensor upload(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                     const std::vector<double>& values);
/// Parametrised over `devices()`: TEST_P(OnEveryDevice, ...) with `device()`.
class OnEveryDevice : public ::testing::TestWithParam<std::size_t> {
 protected:
  TestDevice& device() const { return *devices()[GetParam()]; }
  /// Whether a case of a large set runs on this device. The first device runs all cases, the others one in three: their
  /// drivers take longer to compile than PoCL.
  bool takes(std::size_t number) const { return GetParam() == 0 || is_sampled(number, 3); }
};
#define MOECL_ON_EVERY_DEVICE(suite)                                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Range(std::size_t{0}, ::moecl::test::devices().size()), \
                           [](const auto& param) { return ::moecl::test::devices()[param.param]->label; })

}  // namespace moecl::test
