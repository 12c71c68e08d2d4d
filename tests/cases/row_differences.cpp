#include "tests/oracle/row_differences.hpp"

#include <moecl/row_differences.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_row_differences(StreamView stream) {
  constexpr std::int64_t rows = 3, width = 90;
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 1)),
                            y = rounded(DType::f32, normal(rows * width, 2));
  const DeviceTensor device_x(stream, DType::bf16, {rows, width}, x), device_y(stream, DType::f32, {rows, width}, y),
      out(stream, DType::f32, {rows, 4});
  row_differences::enqueue(stream, {device_x, device_y, out});
  return {{"row_differences", "bf16, f32", "[3, 90]",
           relative_error(out.values(stream), oracle::row_differences(x, y, width)), 1e-6}};
}

}  // namespace moecl::test
