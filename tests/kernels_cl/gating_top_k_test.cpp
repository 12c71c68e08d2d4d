#include "tests/oracle/gating_top_k.hpp"

#include <moecl/gating_top_k.hpp>

#include <random>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

constexpr std::int32_t lane_choices[] = {1, 64};

class GatingTopKTest : public OnEveryDevice {
 protected:
  /// Routes T tokens with 1 and with 64 lanes and compares with the oracle, token by token.
  void check(const std::vector<double>& logits, std::int64_t experts, const std::vector<double>& bias,
             const RouterSpec& spec) {
    const auto tokens = static_cast<std::int64_t>(logits.size()) / experts;
    for (const std::int32_t lanes : lane_choices) {
      SCOPED_TRACE(testing::Message() << "E = " << experts << ", K = " << spec.top_k << ", groups " << spec.kept_groups
                                      << " of " << spec.groups << ", lanes = " << lanes);
      const GuardedTensor x = upload(device(), DType::f32, {tokens, experts}, logits);
      const GuardedTensor b = upload(device(), DType::f32, {bias.empty() ? 0 : experts}, bias);
      const GuardedTensor ids(device(), DType::i32, {tokens, spec.top_k}),
          weights(device(), DType::f32, {tokens, spec.top_k});
      gating_top_k::enqueue(device().stream, {x, bias.empty() ? TensorView() : b.view(), ids, weights}, spec, {lanes});
      const std::vector<double> stored = rounded(DType::f32, logits), stored_bias = rounded(DType::f32, bias);
      const std::vector<std::int32_t> all_ids = ids.read<std::int32_t>();
      const std::vector<double> all_weights = weights.values();
      for (std::int64_t t = 0; t < tokens; ++t) {
        const oracle::TopK expected =
            oracle::gating_top_k({stored.begin() + t * experts, stored.begin() + (t + 1) * experts}, stored_bias, spec);
        const std::vector<std::int32_t> token_ids(all_ids.begin() + t * spec.top_k,
                                                  all_ids.begin() + (t + 1) * spec.top_k);
        const std::vector<double> token_weights(all_weights.begin() + t * spec.top_k,
                                                all_weights.begin() + (t + 1) * spec.top_k);
        ASSERT_EQ(token_ids, expected.ids) << "token " << t;
        ASSERT_LE(relative_error(token_weights, expected.weights), 2e-6) << "token " << t;
      }
    }
  }
};
MOECL_ON_EVERY_DEVICE(GatingTopKTest);

TEST_P(GatingTopKTest, RoutesAsTheFamiliesDo) {
  RouterSpec qwen{8};
  qwen.renormalise = true;
  check(normal(17 * 128, 1), 128, {}, qwen);
  RouterSpec deepseek{
      8, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 8, 4, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F};
  check(normal(5 * 256, 2), 256, normal(256, 3), deepseek);
  check(normal(3 * 60, 4), 60, {}, {4, ScoreFunction::softmax, ScoreOrder::after_top_k});
}

}  // namespace
}  // namespace moecl::test
