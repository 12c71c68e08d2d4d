// The router's weight on the experts' input gives the same result as a layer whose input is the product, rounded on
// the host, and whose weights are 1.
#include <gmock/gmock.h>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

/// One expert a token and sigmoid weights. There are no shared experts: they would not see the product.
Model model_of(DType dtype, bool weight_on_input) {
  Model model("qwen3-moe-e64k8", dtype);
  model.config.shape.router = {};
  model.config.shape.router.score = ScoreFunction::sigmoid;
  model.config.shape.router.weight_on_input = weight_on_input;
  return model;
}

Outputs of_products(TestDevice& device, DType dtype, const Outputs& routed) {
  const StreamView stream = device.stream;
  Model model = model_of(dtype, false);
  const std::vector<double> weights = rounded(dtype, routed.weights);
  model.input = rounded(dtype, model.input);
  for (std::size_t i = 0; i < model.input.size(); ++i)
    model.input[i] *= weights[i / static_cast<std::size_t>(model.hidden())];
  model.input = rounded(dtype, model.input);
  const DeviceTensor ids(stream, DType::i32, {model.tokens(), 1}, routed.ids),
      ones(stream, DType::f32, {model.tokens(), 1}, std::vector<double>(routed.weights.size(), 1));
  const MoeLayer layer(stream, model.config.shape, find_layer_weights(model.checkpoint, model.config), model.options);
  const Buffer workspace(*stream.context, layer.workspace_bytes(model.tokens()));
  return forward<MoeLayer::Forward>(stream, model, 0, model.tokens(), [&](MoeLayer::Forward& args) {
    args.workspace = workspace.view();
    args.topk_ids = args.topk_weights = {};
    args.ids = ids;
    args.weights = ones;
    layer.forward(stream, args);
  });
}

class WeightOnInputTest : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Places, WeightOnInputTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(WeightOnInputTest, ExpertsSeeTheProduct) {
  TestDevice& first = *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0];
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Model model = model_of(dtype, true);
    const Outputs one = of_one_rank(first, model), expected = of_products(first, dtype, one);
    EXPECT_EQ(one.out, expected.out) << name(dtype);
    EXPECT_EQ(one.routed, expected.out);

    Ranks on(3, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport});
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << name(kind) << ", " << name(dtype));
      const Outputs got = of_ranks(on, model, {kind}, 1, {4, 0, model.tokens() - 4}, false);
      EXPECT_EQ(got.ids, one.ids);
      EXPECT_LE(relative_error(got.out, one.out), tolerance_between(GetParam().places, dtype));
    }
  }
}

TEST(WeightOnInputRefusalTest, NeedsOneExpertAToken) {
  Model model("qwen3-moe-e64k8");
  model.config.shape.router.weight_on_input = true;
  TestDevice& device = *devices()[0];
  EXPECT_THAT(error_of([&] {
                MoeLayer(device.stream, model.config.shape, find_layer_weights(model.checkpoint, model.config));
              }).what(),
              testing::HasSubstr("weight_on_input: needs top_k 1, got 8"));
}

}  // namespace
}  // namespace moecl::test
