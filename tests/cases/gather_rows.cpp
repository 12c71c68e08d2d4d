#include <moecl/gather_rows.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_gather_rows(StreamView stream) {
  const std::vector<double> source = normal(5 * 33, 1), index = {9, 0, 3, 3, 8, 1, 6};
  const DeviceTensor x(stream, DType::bf16, {5, 33}, source), slots(stream, DType::i32, {7}, index);
  const DeviceTensor out(stream, DType::f32, {7, 33});
  gather_rows::enqueue(stream, {x, slots, 2, {}, 0, out});
  const std::vector<double> stored = rounded(DType::bf16, source);
  std::vector<double> expected;
  for (const double slot : index)
    for (std::size_t h = 0; h < 33; ++h) expected.push_back(stored[static_cast<std::size_t>(slot) / 2 * 33 + h]);
  return {{"gather_rows", "", "bf16[5, 33] -> f32[7, 33]", relative_error(out.values(stream), expected), 0}};
}

}  // namespace moecl::test
