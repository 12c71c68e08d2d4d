// Replacing the weights of a living layer: earlier passes have the old weights, later passes are those of a new layer.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "tests/devices.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

/// The experts in another order, in place of another checkpoint of the same form.
MoeWeights turned(MoeWeights weights) {
  std::rotate(weights.experts.begin(), weights.experts.begin() + 1, weights.experts.end());
  return weights;
}

class ReplaceWeightsTest : public OnEveryDevice {
 protected:
  /// Enqueues a pass and waits for nothing.
  struct Pass {
    DeviceTensor x, out;
    Buffer workspace;

    Pass(const TestDevice& device, const Model& model, const MoeLayer& layer)
        : x(device.stream, model.options.dtype, {model.tokens(), model.hidden()}, model.input),
          out(device.stream, DType::f32, {model.tokens(), model.hidden()}),
          workspace(*device.context, layer.workspace_bytes(model.tokens())) {
      MoeLayer::Forward args;
      args.x = x;
      args.out = out;
      args.workspace = workspace.view();
      layer.forward(device.stream, args);
    }
  };
  std::vector<double> run(const Model& model, const MoeLayer& layer) const {
    return Pass(device(), model, layer).out.values(device().stream);
  }
  std::string refusal(MoeLayer& layer, const MoeWeights& weights) const {
    return error_of([&] { layer.replace_weights(device().stream, weights); }).what();
  }
};
MOECL_ON_EVERY_DEVICE(ReplaceWeightsTest);

TEST_P(ReplaceWeightsTest, IsTheLayerOfTheNewWeightsInTheOldMemory) {
  for (const char* name : {"qwen2-moe-e16k4", "deepseek-v3-e16k4-negbias", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2",
                           "qwen3-moe-gptq-e8k4", "deepseek-v3-fp8block-e8k4", "qwen3-moe-ct-nvfp4-e8k2"}) {
    SCOPED_TRACE(name);
    Model model(name);
    model.options.activations = model.config.expert_scheme().activations;
    const MoeWeights old = find_layer_weights(model.checkpoint, model.config), other = turned(old);
    const MoeLayer expected(device().stream, model.config.shape, other, model.options);
    MoeLayer layer(device().stream, model.config.shape, old, model.options);
    const std::vector<double> before = run(model, layer), after = run(model, expected);
    const std::uint64_t bytes = layer.report().weight_bytes;
    ASSERT_GT(relative_error(after, before), 1e-2);

    const Pass under_way(device(), model, layer);
    layer.replace_weights(device().stream, other);
    EXPECT_EQ(under_way.out.values(device().stream), before);
    EXPECT_EQ(run(model, layer), after);
    EXPECT_EQ(layer.report().weight_bytes, bytes);
    EXPECT_EQ(layer.report().read_bytes, expected.report().read_bytes);
    layer.replace_weights(device().stream, old);
    EXPECT_EQ(run(model, layer), before);
  }
}

TEST_P(ReplaceWeightsTest, OneExpertByAnother) {
  for (const char* name : {"qwen2-moe-e16k4", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2", "mixtral-e8k2"}) {
    SCOPED_TRACE(name);
    Model model(name);
    if (std::string(name) == "mixtral-e8k2") model.options.quantize = QuantScheme::int8_w8a16().weights;
    const MoeWeights old = find_layer_weights(model.checkpoint, model.config);
    MoeWeights other = old;
    other.experts[2] = old.experts[0];
    const MoeLayer expected(device().stream, model.config.shape, other, model.options);
    MoeLayer layer(device().stream, model.config.shape, old, model.options);
    const std::vector<double> before = run(model, layer);
    layer.replace_expert(device().stream, 2, old.experts[0]);
    EXPECT_EQ(run(model, layer), run(model, expected));
    layer.replace_expert(device().stream, 2, old.experts[2]);
    EXPECT_EQ(run(model, layer), before);
    const auto refusal = [&](std::int64_t number, const ExpertMatrices& expert) {
      return std::string(error_of([&] { layer.replace_expert(device().stream, number, expert); }).what());
    };
    EXPECT_THAT(refusal(model.config.shape.experts, old.experts[0]), HasSubstr("replace_expert: "));
    ExpertMatrices wrong = old.experts[0];
    std::swap(wrong.up, wrong.down);
    EXPECT_THAT(refusal(2, wrong), HasSubstr("expert 2 up: expected"));
    EXPECT_EQ(run(model, layer), before);
  }
}

TEST_P(ReplaceWeightsTest, TakesEveryLayoutAndBackend) {
  Model model("mixtral-e8k2");
  const MoeWeights old = find_layer_weights(model.checkpoint, model.config);
  model.options.layout = ExpertLayout::batched;
  for (const auto backend : {dense_backend::Backend::grouped_gemm, dense_backend::Backend::clblast}) {
    model.options.dense_backend = backend;
    MoeLayer layer(device().stream, model.config.shape, old, model.options);
    const MoeLayer expected(device().stream, model.config.shape, turned(old), model.options);
    layer.replace_weights(device().stream, turned(old));
    EXPECT_EQ(run(model, layer), run(model, expected)) << dense_backend::name(backend);
  }
}

TEST_P(ReplaceWeightsTest, TakesOtherStaticScalesOfInputs) {
  Model model("mixtral-e8k2");
  model.options.activations = {CodeType::f8_e4m3, ScaleGroup::per_tensor()};
  model.options.activations.static_scale = true;
  MoeWeights old = find_layer_weights(model.checkpoint, model.config), other = old;
  for (ExpertMatrices& expert : old.experts) expert.gate_up_input_scale = expert.down_input_scale = 0.01F;
  for (ExpertMatrices& expert : other.experts) expert.gate_up_input_scale = expert.down_input_scale = 0.02F;
  MoeLayer layer(device().stream, model.config.shape, old, model.options);
  const MoeLayer expected(device().stream, model.config.shape, other, model.options);
  ASSERT_NE(run(model, layer), run(model, expected));
  layer.replace_weights(device().stream, other);
  EXPECT_EQ(run(model, layer), run(model, expected));
  other.experts.front().down_input_scale = 0;
  EXPECT_THAT(refusal(layer, other), HasSubstr("need a scale beside the weights"));
}

TEST_P(ReplaceWeightsTest, KeepsWhatItHasWhereOthersDoNotFit) {
  const Model model("mixtral-awq-e4k2"), plain("mixtral-e8k2");
  const MoeWeights old = find_layer_weights(model.checkpoint, model.config);
  MoeLayer layer(device().stream, model.config.shape, old, model.options);
  const std::vector<double> before = run(model, layer);
  EXPECT_THAT(refusal(layer, find_layer_weights(plain.checkpoint, plain.config)),
              HasSubstr("router: expected [4, 128]"));
  MoeWeights fewer = old;
  fewer.experts.pop_back();
  EXPECT_THAT(refusal(layer, fewer), HasSubstr("experts: the shape says 4, the weights have 3"));
  const std::vector<float> numbers(static_cast<std::size_t>(model.config.shape.intermediate * model.hidden()));
  MoeWeights unpacked = old;
  for (ExpertMatrices& expert : unpacked.experts)
    expert.down = HostMatrix(numbers.data(), DType::f32, model.hidden(), model.config.shape.intermediate);
  EXPECT_THAT(refusal(layer, unpacked), HasSubstr("experts' down: stored as i4, f16 scales of 128 columns"));
  for (const auto& other : devices()) {
    if (other->label == device().label) continue;
    EXPECT_THAT(error_of([&] { layer.replace_weights(other->stream, old); }).what(),
                HasSubstr("replace_weights: the stream is on device"));
  }
  EXPECT_EQ(run(model, layer), before);
}

TEST_P(ReplaceWeightsTest, KeepsWhatItHasWhereTheLastMatrixIsRefused) {
  Model packed("mixtral-awq-e4k2"), quantized("qwen2-moe-e16k4");
  quantized.options.quantize = QuantScheme::int8_w8a16().weights;
  for (const bool quantizes : {false, true}) {
    const Model& model = quantizes ? quantized : packed;
    const MoeWeights old = find_layer_weights(model.checkpoint, model.config);
    MoeLayer layer(device().stream, model.config.shape, old, model.options);
    const std::vector<double> before = run(model, layer);
    MoeWeights other = turned(old);
    WeightMatrix& last = other.experts.back().down;
    std::vector<float> numbers(static_cast<std::size_t>(last.rows() * last.columns()));
    numbers.back() = std::numeric_limits<float>::quiet_NaN();
    if (quantizes)
      last = HostMatrix(numbers.data(), DType::f32, last.rows(), last.columns());
    else
      last.codes.unit_codes = 9;
    EXPECT_THAT(refusal(layer, other), HasSubstr(quantizes ? "quantize: row " + std::to_string(last.rows() - 1)
                                                           : "codes: 9 codes of 4 bits do not fit"));
    EXPECT_EQ(run(model, layer), before);
  }
}

TEST_P(ReplaceWeightsTest, TakesASelectionBiasOfAnyStride) {
  const Model model("deepseek-v3-e16k4-negbias");
  MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
  MoeLayer layer(device().stream, model.config.shape, weights, model.options);
  const std::vector<double> before = run(model, layer);
  ASSERT_EQ(weights.selection_bias.dtype, DType::f32);
  std::vector<float> bias(static_cast<std::size_t>(weights.selection_bias.columns)), apart(3 * bias.size());
  weights.selection_bias.data.read(bias.data(), weights.selection_bias.span_bytes());
  for (std::size_t e = 0; e < bias.size(); ++e) apart[3 * e] = bias[e];
  weights.selection_bias.data = apart.data();
  weights.selection_bias.column_stride = 3;
  layer.replace_weights(device().stream, weights);
  EXPECT_EQ(run(model, layer), before);
}

TEST_P(ReplaceWeightsTest, RefusesPassesUntilWhatBeganIsWhole) {
  const Model model("mixtral-e8k2");
  const MoeWeights old = find_layer_weights(model.checkpoint, model.config);
  MoeLayer layer(device().stream, model.config.shape, old, model.options);
  const std::vector<double> before = run(model, layer);
  EXPECT_THROW(layer.replace_weights(device().stream, turned(old),
                                     [](std::int64_t done, std::int64_t) {
                                       if (done == 3) throw std::runtime_error("enough");
                                     }),
               std::runtime_error);
  EXPECT_THAT(error_of([&] { run(model, layer); }).what(), HasSubstr("failed half way"));
  layer.replace_weights(device().stream, old);
  EXPECT_EQ(run(model, layer), before);
}

TEST(ReplaceWeightsOfRanksTest, EachRankTakesItsShare) {
  const Model model("qwen2-moe-e16k4");
  const MoeWeights other = turned(find_layer_weights(model.checkpoint, model.config));
  TestDevice& device = *devices().front();
  const MoeLayer expected(device.stream, model.config.shape, other, model.options);
  const Buffer workspace(*device.context, expected.workspace_bytes(model.tokens()));
  const Outputs alone =
      forward<MoeLayer::Forward>(device.stream, model, 0, model.tokens(), [&](MoeLayer::Forward& args) {
        args.workspace = workspace.view();
        expected.forward(device.stream, args);
      });
  for (const ExpertSharding sharding : {ExpertSharding::experts, ExpertSharding::intermediate}) {
    Ranks on(2, Ranks::first_device, {});
    std::vector<Outputs> parts(2);
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 2, model.config.shape.experts, sharding);
      ParallelPlan plan;
      plan.strategy = StrategyKind::all_gather;
      ParallelLayer layer(rank, plan, model.config.shape, model.weights(rank.first_expert, rank.local_experts),
                          model.options);
      MoeWeights mine = other;
      mine.experts.assign(other.experts.begin() + rank.first_expert,
                          other.experts.begin() + rank.first_expert + rank.local_experts);
      layer.replace_weights(mine);
      parts[static_cast<std::size_t>(world.rank())] = forward<ParallelLayer::Forward>(
          world.stream(), model, 0, model.tokens(), [&](const ParallelLayer::Forward& args) { layer.forward(args); });
    });
    for (const Outputs& part : parts) EXPECT_LE(relative_error(part.out, alone.out), 1e-6);
  }
}

}  // namespace
}  // namespace moecl::test
