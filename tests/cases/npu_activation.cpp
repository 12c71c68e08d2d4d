#include "tests/oracle/npu_activation.hpp"

#include "host/npu/describe_activation.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_npu_activation(StreamView stream) {
  constexpr std::int64_t rows = 3, width = 17;
  const std::vector<double> x = normal(rows * 2 * width, 1);
  const DeviceTensor device_x(stream, DType::f32, {rows, 2 * width}, x);
  npu::SwigluArgs swiglu;
  swiglu.x = device_x;
  return {{"npu_swiglu", "y", "f32[3, 34]",
           relative_error(call_operator(stream, swiglu).front(), oracle::swiglu(rounded(DType::f32, x), rows, width)),
           1e-6}};
}

}  // namespace moecl::test
