#pragma once
// Every test of a device runs on every OpenCL device found. None at all is a failure, not a skip.
#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/tensor_view.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// A device with a context and a stream that live as long as the test program.
struct TestDevice {
  std::unique_ptr<Context> context;
  Stream stream;
  std::string label;  ///< "Portable_Computing_Language_0": fit for a test name

  const DeviceCaps& caps() const { return context->devices().front().caps; }
};

/// All usable devices; never empty.
const std::vector<std::unique_ptr<TestDevice>>& devices();

/// Memory with guard words around it: `check_guards` finds writes before or after the view.
class GuardedTensor {
 public:
  /// Poisoned with 0x7fc1 half-words (NaN in f32, f16 and bf16), starting at an odd element offset in a bigger buffer.
  GuardedTensor(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape);
  template <class T>
  GuardedTensor(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                const std::vector<T>& values)
      : GuardedTensor(device, dtype, shape) {
    EXPECT_EQ(values.size() * sizeof(T), view_.size_bytes()) << view_.describe();
    write_blocking(device_.stream, view_.buffer, values.data(), view_.size_bytes());
  }

  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(view_.size_bytes() / sizeof(T));
    read_blocking(device_.stream, view_.buffer, values.data(), view_.size_bytes());
    check_guards();
    return values;
  }
  /// Elements as double, whatever the floating or integer storage type.
  std::vector<double> values() const;
  void check_guards() const;

 private:
  const TestDevice& device_;
  Buffer buffer_;
  TensorView view_;
};

/// A tensor on the device that holds `values` rounded to `dtype`.
GuardedTensor upload(const TestDevice& device, DType dtype, std::initializer_list<std::int64_t> shape,
                     const std::vector<double>& values);
/// Parametrised over `devices()`: TEST_P(OnEveryDevice, ...) with `device()`.
class OnEveryDevice : public ::testing::TestWithParam<std::size_t> {
 protected:
  TestDevice& device() const { return *devices()[GetParam()]; }
};
#define MOECL_ON_EVERY_DEVICE(suite)                                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Range(std::size_t{0}, ::moecl::test::devices().size()), \
                           [](const auto& param) { return ::moecl::test::devices()[param.param]->label; })

}  // namespace moecl::test
