#include "tests/oracle/npu_activation.hpp"

#include <cmath>

#include "host/npu/describe_activation.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t rows = 3, width = 17;

SelfTestResult test_swiglu(StreamView stream) {
  const std::vector<double> x = normal(rows * 2 * width, 1);
  const DeviceTensor device_x(stream, DType::f32, {rows, 2 * width}, x);
  npu::SwigluArgs swiglu;
  swiglu.x = device_x;
  return {"npu_swiglu", "y", "f32[3, 34]",
          relative_error(call_operator(stream, swiglu).front(), oracle::swiglu(rounded(DType::f32, x), rows, width)),
          1e-6};
}

/// Compares the values of codes with unrounded ones. Tolerance: half a unit of 127, and the error of f32.
template <class Args>
SelfTestResult test_dequant_swiglu(StreamView stream, Args args, const oracle::SwigluForm& form) {
  std::vector<double> x = normal(rows * 2 * width, 2);
  for (double& value : x) value = static_cast<int>(value * 1000);
  const std::vector<double> scales(2 * width, 0x1p-10);
  const DeviceTensor device_x(stream, DType::i32, {rows, 2 * width}, x),
      weight_scale(stream, DType::f32, {2 * width}, scales);
  args.x = device_x;
  args.weight_scale = weight_scale;
  args.quant_mode = 1;
  const std::vector<std::vector<double>> outputs = call_operator(stream, args);
  double error = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(r * 2 * width),
                            x.begin() + static_cast<std::ptrdiff_t>((r + 1) * 2 * width));
    for (double& value : row) value *= 0x1p-10;
    const std::vector<double> y = oracle::dequantized_swiglu(row, form);
    for (std::size_t i = 0; i < width; ++i)
      error = std::fmax(error, std::abs(outputs[0][r * width + i] - y[i] / outputs[1][r]));
  }
  return {npu::Describe<Args>::name, "y", "i32[3, 34]", error, 0.501};
}

}  // namespace

std::vector<SelfTestResult> self_test_npu_activation(StreamView stream) {
  npu::DequantSwigluQuantArgs interleaved;
  interleaved.swiglu_mode = 1;
  npu::CAscendDequantSwigluQuantArgs halves;
  halves.swiglu_mode = 1;
  halves.clamp_limit = 1;
  return {test_swiglu(stream), test_dequant_swiglu(stream, interleaved, {true, true}),
          test_dequant_swiglu(stream, halves, {true, false, false, 1, 1, 0})};
}

}  // namespace moecl::test
