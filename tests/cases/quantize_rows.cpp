#include "tests/oracle/quantize_rows.hpp"

#include <moecl/quantize_rows.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_quantize_rows(StreamView stream) {
  constexpr std::int64_t rows = 4, width = 33;
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 1));
  const DeviceTensor device_x(stream, DType::bf16, {rows, width}, x), q(stream, DType::i8, {rows, width}),
      scale(stream, DType::f32, {rows});
  quantize_rows::enqueue(stream, {device_x, {}, 0, q, scale});
  std::vector<double> expected, expected_scales;
  for (auto row = x.begin(); row != x.end(); row += width) {
    const oracle::QuantizedRow quantized = oracle::quantize_row({row, row + width}, quantize_rows::Rounding::divide);
    expected.insert(expected.end(), quantized.q.begin(), quantized.q.end());
    expected_scales.push_back(quantized.scale);
  }
  // Where division is not correctly rounded a value next to a tie may go to the other side: one unit of 127.
  const bool exact = stream.device->caps.correctly_rounded_divide;
  return {{"quantize_rows", "q", "bf16[4, 33]", relative_error(q.values(stream), expected), exact ? 0 : 1.0 / 127},
          {"quantize_rows", "scale", "bf16[4, 33]", relative_error(scale.values(stream), expected_scales),
           exact ? 0 : 3e-7}};
}

}  // namespace moecl::test
