#include "tests/oracle/mx_quantize.hpp"

#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_mx_quantize(StreamView stream) {
  constexpr std::int64_t rows = 3, width = 90;
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 1));
  const DeviceTensor device_x(stream, DType::bf16, {rows, width, 1}, x), scale(stream, DType::u8, {rows, 2, 1, 2});
  std::vector<SelfTestResult> results;
  for (const auto& [name, format] : {std::pair("e4m3", fp8_e4m3fn), std::pair("e2m1", fp4_e2m1)}) {
    const DeviceTensor y(stream, DType::u8, {rows, format.bits() == 4 ? width / 2 : width, 1});
    const mx_quantize::Args args{device_x, format, y, scale};
    mx_quantize::enqueue(stream, args);
    const oracle::MxTensor expected = oracle::mx_quantize(x, width, 1, args);
    const std::vector<double> codes(expected.y.begin(), expected.y.end()),
        scales(expected.scale.begin(), expected.scale.end());
    results.push_back(
        {"mx_quantize", std::string(name) + " y", "bf16[3, 90]", relative_error(y.values(stream), codes)});
    results.push_back(
        {"mx_quantize", std::string(name) + " scale", "bf16[3, 90]", relative_error(scale.values(stream), scales)});
  }
  return results;
}

}  // namespace moecl::test
