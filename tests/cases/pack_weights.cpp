#include "tests/oracle/pack_weights.hpp"

#include <moecl/pack_weights.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_pack_weights(StreamView stream) {
  const std::vector<double> matrix = normal(65 * 33, 1);
  const DeviceTensor source(stream, DType::f32, {65, 33}, matrix), packed(stream, DType::f32, {2, 33, 64});
  pack_weights::enqueue(stream, {source, {packed.buffer.view(), CodeType::f32, 1, 65, 33}});
  const double error = relative_error(packed.values(stream), oracle::pack_weights(rounded(DType::f32, matrix), 33));
  return {{"pack_weights", "", "f32[65, 33]", error, 0}};
}

}  // namespace moecl::test
