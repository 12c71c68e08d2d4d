// A layer whose experts take turns in device memory gives the bits of a layer with all its experts there.
#include <gmock/gmock.h>

#include <set>

#include "tests/host/c_golden.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

constexpr ResidencyPolicy policies[] = {ResidencyPolicy::lru, ResidencyPolicy::least_stale, ResidencyPolicy::fixed};

ExpertBudget budget(double percent, ResidencyPolicy policy, std::int64_t experts,
                    MissedExperts missed = MissedExperts::fetched) {
  ExpertBudget of;
  of.percent = percent, of.policy = policy, of.missed = missed;
  if (policy == ResidencyPolicy::fixed)
    for (std::int64_t e = 0; e < experts; ++e) of.loads.push_back(static_cast<float>(e * 7 % 5));
  return of;
}

class ResidencyTest : public OnEveryDevice {
 protected:
  Outputs pass(const MoeLayer& layer, const Model& model, std::int64_t first, std::int64_t tokens) {
    const StreamView stream = device().stream;
    const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
    return forward<MoeLayer::Forward>(stream, model, first, tokens, [&](MoeLayer::Forward& args) {
      args.workspace = workspace.view();
      layer.forward(stream, args);
    });
  }
};
MOECL_ON_EVERY_DEVICE(ResidencyTest);

TEST_P(ResidencyTest, BitsOfTheResidentLayer) {
  // Plain, with biases, and codes with every kind of scales; few experts and many.
  const std::pair<const char*, DType> models[] = {
      {"qwen2-moe-e16k4", DType::f32},         {"qwen3-moe-e64k8", DType::f16},     {"gpt-oss-mxfp4-e8k4", DType::f32},
      {"qwen3-moe-gptq-e8k4", DType::f32},     {"mixtral-awq-e4k2", DType::f32},    {"mixtral-ct-fp8-e4k2", DType::f32},
      {"qwen3-moe-ct-nvfp4-e8k2", DType::f32}, {"mixtral-odd257-bf16", DType::bf16}};
  std::size_t number = 0;
  for (const auto& [name, dtype] : models) {
    if (!takes(number++)) continue;
    Model model(name, dtype);
    const std::int64_t experts = model.config.shape.experts;
    const MoeLayer whole(device().stream, model.config.shape, model.weights(0, experts), model.options);
    EXPECT_EQ(whole.report().resident_experts, experts);
    const Outputs all = pass(whole, model, 0, model.tokens()), one = pass(whole, model, 1, 1);
    struct Case {
      double percent;
      ResidencyPolicy policy;
      MissedExperts missed;
    };
    std::vector<Case> cases = {{1, ResidencyPolicy::lru, MissedExperts::fetched},
                               {100, ResidencyPolicy::lru, MissedExperts::fetched},
                               {1, ResidencyPolicy::lru, MissedExperts::in_place}};
    for (const ResidencyPolicy policy : policies) cases.push_back({40, policy, MissedExperts::fetched});
    for (const auto& [percent, policy, missed] : cases) {
      SCOPED_TRACE(testing::Message() << name << ", " << percent << " %, " << moecl::name(policy) << ", "
                                      << moecl::name(missed));
      model.options.budget = budget(percent, policy, experts, missed);
      const MoeLayer layer(device().stream, model.config.shape, model.weights(0, experts), model.options);
      const auto slots = static_cast<std::int64_t>(std::ceil(static_cast<double>(experts) * percent / 100));
      EXPECT_EQ(layer.report().resident_experts, slots);
      if (percent < 100) {
        EXPECT_LT(layer.report().weight_bytes, whole.report().weight_bytes);
      }
      for (int again = 0; again < 2; ++again) {
        EXPECT_TRUE(pass(layer, model, 1, 1) == one);
        EXPECT_TRUE(pass(layer, model, 0, model.tokens()) == all);
      }
    }
  }
}

TEST_P(ResidencyTest, ExpertsThatStayAreHits) {
  Model model("qwen3-moe-e64k8");
  const StreamView stream = device().stream;
  const bool is_cpu = stream.device->caps.type == DeviceType::cpu;
  for (const MissedExperts missed : {MissedExperts::automatic, MissedExperts::fetched, MissedExperts::in_place}) {
    SCOPED_TRACE(name(missed));
    model.options.budget = budget(25, ResidencyPolicy::lru, 64, missed);  // 16 of 64
    const MoeLayer layer(stream, model.config.shape, model.weights(0, 64), model.options);
    const bool in_place = missed == MissedExperts::in_place || (missed == MissedExperts::automatic && is_cpu);
    EXPECT_THAT(layer.report().missed_experts, testing::StartsWith(in_place ? "in-place" : "fetched"));
    const auto counts = [&] { return layer.residency(stream); };
    EXPECT_EQ(counts().hits + counts().misses, 0);
    const Outputs first = pass(layer, model, 0, 1);
    EXPECT_EQ(std::pair(counts().hits, counts().misses), std::pair(std::int64_t{0}, std::int64_t{8}));
    EXPECT_EQ(counts().fetched_bytes * 64, 8 * (4 * layer.report().resident_bytes));
    EXPECT_TRUE(pass(layer, model, 0, 1) == first);
    EXPECT_EQ(std::pair(counts().hits, counts().misses), std::pair(std::int64_t{8}, std::int64_t{8}));
    // Two tokens have at most 16 experts. After this pass those experts are resident.
    const Outputs two = pass(layer, model, 3, 2);
    const std::set<double> used(two.ids.begin(), two.ids.end());
    const auto before = counts();
    pass(layer, model, 3, 2);
    EXPECT_EQ(counts().hits - before.hits, std::ssize(used));
    EXPECT_EQ(counts().misses, before.misses);
  }
}

TEST_P(ResidencyTest, ReplacedExpertsAreFetchedAgain) {
  Model model("qwen2-moe-e16k4");
  const StreamView stream = device().stream;
  const MoeWeights weights = model.weights(0, 16);
  MoeWeights turned = weights;
  std::rotate(turned.experts.begin(), turned.experts.begin() + 3, turned.experts.end());
  MoeLayer whole(stream, model.config.shape, turned, model.options);
  model.options.budget = budget(50, ResidencyPolicy::least_stale, 16);
  MoeLayer layer(stream, model.config.shape, weights, model.options);
  pass(layer, model, 0, 4);
  layer.replace_weights(stream, turned);
  EXPECT_TRUE(pass(layer, model, 0, 4) == pass(whole, model, 0, 4));
  for (MoeLayer* of : {&whole, &layer}) of->replace_expert(stream, 5, weights.experts[9]);
  EXPECT_TRUE(pass(layer, model, 0, 4) == pass(whole, model, 0, 4));
}

TEST_P(ResidencyTest, BudgetsThatCannotBe) {
  Model model("qwen2-moe-e16k4");
  const MoeWeights weights = model.weights(0, 16);
  const auto refused = [&](const ExpertBudget& of, const std::string& expected) {
    model.options.budget = of;
    EXPECT_THAT([&] { MoeLayer(device().stream, model.config.shape, weights, model.options); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(expected)));
  };
  refused({10, 0, ResidencyPolicy::lru, {}, {}}, "memory budget: 10 bytes, one expert needs");
  refused({0, 101, ResidencyPolicy::lru, {}, {}}, "memory budget: 101 %");
  refused({10, 10, ResidencyPolicy::lru, {}, {}}, "expected one of them");
  refused({0, 50, ResidencyPolicy::fixed, {1, 2}, {}}, "loads of 2 experts, here are 16");
  refused({0, 50, ResidencyPolicy::fixed, std::vector<float>(16, -1), {}}, "a load of -1");
}

TEST(ResidencyOfRanks, EveryStrategyUnderEveryBudget) {
  for (std::int32_t ranks = 1; ranks <= 8; ++ranks) {
    Model model("qwen2-moe-e16k4");
    Ranks on(ranks, Ranks::first_device);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), model.tokens() / ranks);
    tokens.back() += model.tokens() % ranks;
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
      model.options.budget = {};
      const Outputs whole = of_ranks(on, model, {kind}, 1, tokens, true);
      EXPECT_LE(relative_error(whole.out, golden_values("qwen2-moe-e16k4", "output")), 1e-5);
      for (const double percent : {1.0, 50.0}) {
        SCOPED_TRACE(testing::Message() << name(kind) << ", " << ranks << " ranks, " << percent << " %");
        model.options.budget =
            budget(percent, ResidencyPolicy::lru, 0, percent == 1 ? MissedExperts::fetched : MissedExperts::automatic);
        EXPECT_TRUE(of_ranks(on, model, {kind}, 1, tokens, true) == whole);
      }
    }
  }
}

}  // namespace
}  // namespace moecl::test
