// Single experts out of a layer: as plain numbers, against the definitions of the schemes; and as the device has them,
// into another layer.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/devices.hpp"
#include "tests/host/ranked_model.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ExpertExportTest : public OnEveryDevice {
 protected:
  std::vector<double> run(const Model& model, const MoeLayer& layer) const {
    return run_layer(device(), layer, model.input).out;
  }
  MoeLayer loaded(const Model& model, const MoeWeights& weights) const {
    return {device().stream, model.config.shape, weights, model.options};
  }
};
MOECL_ON_EVERY_DEVICE(ExpertExportTest);

void expect_matrix(const std::vector<float>& numbers, const WeightMatrix& matrix, const char* what) {
  ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), matrix.present() ? matrix.rows() * matrix.columns() : 0) << what;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i) / matrix.columns(), k = static_cast<std::int64_t>(i) % matrix.columns();
    const double expected = matrix.quantized() ? weight_element(matrix, n, k) : matrix_element(matrix.plain, n, k);
    ASSERT_LE(std::abs(numbers[i] - expected), 1e-6 * std::abs(expected)) << what << "[" << n << ", " << k << "]";
  }
}

/// The matrix in memory, where the oracle can read it.
WeightMatrix in_memory(WeightMatrix matrix) {
  if (matrix.plain.present()) matrix.plain = matrix.plain.in_memory();
  if (matrix.scale.present()) matrix.scale = matrix.scale.in_memory();
  for (CodeMatrix* codes : {&matrix.codes, &matrix.zero})
    if (codes->present())
      codes->data = codes->data.in_memory(static_cast<std::uint64_t>(codes->end_unit() * codes->unit_bytes));
  return matrix;
}

void expect_bias(const std::vector<float>& numbers, const HostMatrix& bias, const char* what) {
  ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), bias.present() ? bias.columns : 0) << what;
  const HostMatrix here = bias.in_memory();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    ASSERT_EQ(numbers[i], matrix_element(here, 0, static_cast<std::int64_t>(i))) << what << "[" << i << "]";
}

TEST_P(ExpertExportTest, IsTheMatrixOfTheCheckpointInEveryScheme) {
  for (const char* name :
       {"mixtral-e8k2", "mixtral-odd257-bf16", "gpt-oss-bf16form-e8k4", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2",
        "qwen3-moe-gptq-e8k4", "mixtral-ct-fp8-e4k2", "deepseek-v3-fp8block-e8k4", "qwen3-moe-ct-int4-e4k2",
        "qwen3-moe-ct-int8-e8k2", "qwen3-moe-ct-nvfp4-e8k2"}) {
    SCOPED_TRACE(name);
    Model model(name);
    const MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
    model.options.dtype = stored_dtype(weights);
    const MoeLayer layer = loaded(model, weights);
    const std::int64_t last = model.config.shape.experts - 1;
    const ExpertMatrices& expert = weights.experts.back();
    const PlainExpert plain = layer.plain_expert(device().stream, last);
    expect_matrix(plain.gate, in_memory(expert.gate), "gate");
    expect_matrix(plain.up, in_memory(expert.up), "up");
    expect_matrix(plain.down, in_memory(expert.down), "down");
    expect_bias(plain.gate_bias, expert.gate_bias, "gate bias");
    expect_bias(plain.up_bias, expert.up_bias, "up bias");
    expect_bias(plain.down_bias, expert.down_bias, "down bias");
  }
}

TEST_P(ExpertExportTest, IsTheSameInEveryLayoutAndReplacesExperts) {
  for (const char* name : {"mixtral-awq-e4k2", "qwen3-moe-ct-int8-e8k2", "deepseek-v3-fp8block-e8k4",
                           "qwen3-moe-ct-nvfp4-e8k2", "qwen3-moe-e128k8-bf16"}) {
    SCOPED_TRACE(name);
    Model model(name);
    const MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
    model.options.dtype = DType::bf16;
    model.options.activations = model.config.expert_scheme().activations;
    model.options.panel_layout = PanelLayout::k_words;
    MoeWeights other = weights;
    std::swap(other.experts[1], other.experts[0]);
    MoeLayer layer = loaded(model, other);
    EXPECT_EQ(layer.report().expert_layout, "k_words");
    layer.replace_weights(device().stream, weights);
    const PlainExpert plain = layer.plain_expert(device().stream, 1);
    expect_matrix(plain.gate, in_memory(weights.experts[1].gate), "gate");
    expect_matrix(plain.up, in_memory(weights.experts[1].up), "up");
    expect_matrix(plain.down, in_memory(weights.experts[1].down), "down");
  }
  Model model("mixtral-e8k2");
  model.options.panel_layout = PanelLayout::k_words;
  EXPECT_THAT(error_of([&] { loaded(model, find_layer_weights(model.checkpoint, model.config)); }).what(),
              HasSubstr("multiplies f32 rows by f32 in k_words"));
  model.options.layout = ExpertLayout::batched;
  model.options.dense_backend = dense_backend::Backend::clblast;
  EXPECT_THAT(error_of([&] { loaded(model, find_layer_weights(model.checkpoint, model.config)); }).what(),
              HasSubstr("CLBlast reads no panels, got k_words"));
}

TEST_P(ExpertExportTest, GoesPackedFromLayerToLayer) {
  for (const char* name : {"mixtral-e8k2", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2", "qwen3-moe-gptq-e8k4",
                           "deepseek-v3-fp8block-e8k4", "qwen3-moe-ct-nvfp4-e8k2"}) {
    SCOPED_TRACE(name);
    Model model(name);
    model.options.activations = model.config.expert_scheme().activations;
    const MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
    MoeWeights other = weights;
    other.experts[1] = weights.experts[0];
    MoeLayer layer = loaded(model, other);
    const MoeLayer expected = loaded(model, weights);
    ASSERT_NE(run(model, layer), run(model, expected));
    const std::vector<std::byte> packed = expected.packed_expert(device().stream, 1);
    EXPECT_EQ(packed.size(), expected.packed_expert_bytes());
    layer.replace_packed_expert(device().stream, 1, packed);
    EXPECT_EQ(run(model, layer), run(model, expected));
  }
}

TEST_P(ExpertExportTest, KnowsRowsOfClblastAndUngatedExperts) {
  Model model("mixtral-e8k2");
  const MoeWeights weights = find_layer_weights(model.checkpoint, model.config);
  model.options.layout = ExpertLayout::batched;
  model.options.dense_backend = dense_backend::Backend::clblast;
  const MoeLayer rows = loaded(model, weights);
  const PlainExpert plain = rows.plain_expert(device().stream, 3);
  expect_matrix(plain.gate, in_memory(weights.experts[3].gate), "gate");
  expect_matrix(plain.down, in_memory(weights.experts[3].down), "down");

  MoeWeights ungated = weights;
  for (ExpertMatrices& expert : ungated.experts) expert.gate = {};
  model.config.shape.activation.gated = false;
  model.options = {};
  MoeLayer layer = loaded(model, ungated);
  const PlainExpert of_up = layer.plain_expert(device().stream, 2);
  EXPECT_THAT(of_up.gate, IsEmpty());
  expect_matrix(of_up.up, in_memory(weights.experts[2].up), "up");

  const auto refusal = [&](std::int64_t expert, const std::vector<std::byte>& packed) {
    return std::string(error_of([&] { layer.replace_packed_expert(device().stream, expert, packed); }).what());
  };
  EXPECT_THAT(refusal(0, rows.packed_expert(device().stream, 0)), HasSubstr("replace packed expert: expected"));
  std::vector<std::byte> packed = layer.packed_expert(device().stream, 0);
  EXPECT_THAT(refusal(8, packed), HasSubstr("replace packed expert: 8 is not in [0, 8)"));
  packed.front() = std::byte{0};
  EXPECT_THAT(refusal(0, packed), HasSubstr("got another packing"));
  EXPECT_THAT(error_of([&] { layer.plain_expert(device().stream, -1); }).what(), HasSubstr("-1 is not in [0, 8)"));
}

}  // namespace
}  // namespace moecl::test
