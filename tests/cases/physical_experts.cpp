#include "tests/oracle/physical_experts.hpp"

#include <moecl/physical_experts.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

/// Three experts at one, two and three places.
std::vector<SelfTestResult> self_test_physical_experts(StreamView stream) {
  constexpr std::int64_t tokens = 9, top_k = 2, first_token = 1000;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < tokens * top_k; ++i) ids.push_back(i * i % 4 - (i % 5 == 0 ? 1 : 0));
  const auto doubles = [](const std::vector<std::int32_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const DeviceTensor chosen(stream, DType::i32, {tokens, top_k}, doubles(ids)),
      places(stream, DType::i32, {3, 3}, {0, -1, -1, 1, 3, -1, 2, 4, 5}), replicas(stream, DType::i32, {3}, {1, 2, 3}),
      physical(stream, DType::i32, {tokens, top_k});
  physical_experts::enqueue(stream, {chosen, places, replicas, first_token, physical, {}});
  const std::vector<std::int32_t> expected =
      oracle::physical_experts(ids, top_k, {{0}, {1, 3}, {2, 4, 5}}, first_token);
  return {{"physical_experts", "t0", physical.view.describe() + " E=3",
           physical.values(stream) == doubles(expected) ? 0.0 : 1.0, 0}};
}

}  // namespace moecl::test
