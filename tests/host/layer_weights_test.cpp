#include <moecl/layer_weights.hpp>
#include <moecl/random_checkpoint.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "host/checkpoint/safetensors_format.hpp"
#include "tests/host/files.hpp"
#include "tests/host/static_scales.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

std::vector<double> product(const WeightMatrix& given, const HostMatrix& bias, const std::vector<double>& x) {
  const WeightMatrix matrix = in_memory(given);
  std::vector<double> result(static_cast<std::size_t>(matrix.rows()));
  for (std::size_t r = 0; bias.present() && r < result.size(); ++r)
    result[r] = matrix_element(bias, 0, static_cast<std::int64_t>(r));
  for (std::size_t r = 0; r < result.size(); ++r)
    for (std::size_t c = 0; c < x.size(); ++c)
      result[r] += weight_element(matrix, static_cast<std::int64_t>(r), static_cast<std::int64_t>(c)) * x[c];
  return result;
}

void add_expert(const ExpertMatrices& expert, const Activation& activation, double weight, const std::vector<double>& x,
                std::vector<double>& out) {
  std::vector<double> gate_up = product(expert.gate, expert.gate_bias, x);
  const std::vector<double> up = product(expert.up, expert.up_bias, x);
  gate_up.insert(gate_up.end(), up.begin(), up.end());
  const std::vector<double> y = product(expert.down, expert.down_bias, oracle::gated_activation(gate_up, activation));
  for (std::size_t h = 0; h < out.size(); ++h) out[h] += weight * y[h];
}

template <class T>
std::vector<T> read(const SafetensorsFile& file, const char* name) {
  const HostTensor tensor = file.tensor(name);
  std::vector<T> values(tensor.size_bytes / sizeof(T));
  tensor.data.read(values.data(), tensor.size_bytes);
  return values;
}

class LayerWeightsTest : public testing::TestWithParam<std::string> {};

/// Computes the first token in double with the golden's own routing: right only if each tensor is in its place.
TEST_P(LayerWeightsTest, GiveTheGoldenOutput) {
  const std::string dir = data_path("goldens/" + GetParam());
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
  const MoeWeights weights = find_layer_weights(checkpoint, config);
  const auto golden = SafetensorsFile::open(dir + "/golden.safetensors");
  const auto all = read<float>(golden, "hidden_states");
  ASSERT_GE(all.size(), static_cast<std::size_t>(config.shape.hidden));
  const std::vector<double> x(all.begin(), all.begin() + config.shape.hidden);

  const auto logits = read<float>(golden, "router_logits");
  const std::vector<double> found_logits = product(weights.router, weights.router_bias, x);
  for (std::size_t e = 0; e < found_logits.size(); ++e) EXPECT_NEAR(found_logits[e], logits[e], 1e-5);

  std::vector<double> output(x.size());
  const auto ids = read<std::int32_t>(golden, "topk_ids");
  const auto row_weights = read<float>(golden, "topk_weights");
  for (std::size_t k = 0; k < static_cast<std::size_t>(config.shape.router.top_k); ++k) {
    const ExpertMatrices& expert = weights.experts.at(static_cast<std::size_t>(ids[k]));
    const bool on_input = config.shape.router.weight_on_input;
    std::vector<double> scaled = x;
    for (double& value : scaled) value *= on_input ? row_weights[k] : 1;
    add_expert(expert, config.shape.activation, on_input ? 1 : row_weights[k], scaled, output);
  }
  if (config.shape.shared_intermediate > 0) {
    const double gate = config.shape.shared_gate ? 1 / (1 + std::exp(-product(weights.shared_gate, {}, x)[0])) : 1.0;
    add_expert(weights.shared, config.shape.activation, gate, x, output);
  }
  const auto expected = read<double>(golden, "output_f64");
  double largest = 0;
  for (std::size_t h = 0; h < x.size(); ++h) largest = std::max(largest, std::abs(expected[h]));
  for (std::size_t h = 0; h < x.size(); ++h) EXPECT_NEAR(output[h], expected[h], 5e-6 * largest);

  EXPECT_EQ(weights.selection_bias.present(), config.shape.selection_bias);
  EXPECT_EQ(weights.selection_bias.columns, config.shape.selection_bias ? config.shape.experts : 0);
}

std::vector<std::string> golden_cases() {
  std::vector<std::string> cases;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens")))
    if (entry.path().filename() != "mixtral-t0") cases.push_back(entry.path().filename());  // t0 has no token
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Goldens, LayerWeightsTest, testing::ValuesIn(golden_cases()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

/// A copy of an f32 checkpoint with the last two dimensions of its stacked tensors swapped.
void write_swapped(const std::string& from, const std::string& to) {
  const SafetensorsFile file = SafetensorsFile::open(from + "/model.safetensors");
  std::filesystem::create_directory(to);
  std::filesystem::copy_file(from + "/config.json", to + "/config.json");
  std::vector<HostTensor> tensors;
  for (const std::string& name : file.names()) {
    tensors.push_back(file.tensor(name));
    std::vector<std::int64_t>& shape = tensors.back().shape;
    if (shape.size() == 3) std::swap(shape[1], shape[2]);
  }
  HostBytes bytes;
  std::vector<float> swapped;
  write_tensors(to + "/model.safetensors", tensors, [&](const HostTensor& tensor) -> const void* {
    bytes = tensor.in_memory().data;
    if (tensor.shape.size() != 3) return bytes.memory();
    const auto values = read<float>(file, tensor.name.c_str());
    const auto [rows, columns] = std::pair(tensor.shape[1], tensor.shape[2]);
    swapped.resize(values.size());
    for (std::int64_t e = 0; e < tensor.shape[0]; ++e)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
          swapped[static_cast<std::size_t>((e * rows + r) * columns + c)] =
              values[static_cast<std::size_t>((e * columns + c) * rows + r)];
    return swapped.data();
  });
}

/// As released and as transformers 5 saves them. At some widths one of the two matrices is square.
TEST(StackedExpertsTest, OfQwen3VlMayStandEitherWay) {
  for (const int width : {5, 8, 16}) {
    SCOPED_TRACE(width);
    const TempDir dir;
    const nlohmann::json config = {{"model_type", "qwen3_vl_moe_text"},
                                   {"hidden_size", 16},
                                   {"num_hidden_layers", 1},
                                   {"num_experts", 3},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", width}};
    write_random_checkpoint(dir.file("released"), {config.dump(), 1, 0, DType::f32});
    write_swapped(dir.file("released"), dir.file("swapped"));
    const Checkpoint released = Checkpoint::open(dir.file("released")), swapped = Checkpoint::open(dir.file("swapped"));
    const HostTensor gate_up = released.tensor("model.layers.0.mlp.experts.gate_up_proj");
    ASSERT_EQ(gate_up.shape, (std::vector<std::int64_t>{3, 16, 2 * width}));
    const MoeWeights expected = find_layer_weights(released, released.config().layer(0)),
                     got = find_layer_weights(swapped, swapped.config().layer(0));
    const auto first = read<float>(SafetensorsFile::open(dir.file("released/model.safetensors")), gate_up.name.c_str());
    EXPECT_EQ(weight_element(expected.experts[0].up, 1, 2), first[static_cast<std::size_t>(2 * 2 * width + width + 1)]);
    for (std::size_t e = 0; e < 3; ++e)
      for (WeightMatrix ExpertMatrices::*matrix : {&ExpertMatrices::gate, &ExpertMatrices::up, &ExpertMatrices::down}) {
        const WeightMatrix &a = expected.experts[e].*matrix, &b = got.experts[e].*matrix;
        for (std::int64_t r = 0; r < a.rows(); ++r)
          for (std::int64_t c = 0; c < a.columns(); ++c) ASSERT_EQ(weight_element(a, r, c), weight_element(b, r, c));
      }
  }
}

/// A copy of a golden checkpoint whose config.json can be changed.
class LayerWeightsOfTest : public testing::Test {
 protected:
  Checkpoint open(const char* golden, const std::function<void(nlohmann::json&)>& change) {
    const std::string source = data_path("goldens/" + std::string(golden));
    auto config = nlohmann::json::parse(read_text(source + "/config.json"));
    change(config);
    write_text(dir_.file("config.json"), config.dump());
    std::filesystem::copy_file(source + "/model.safetensors", dir_.file("model.safetensors"),
                               std::filesystem::copy_options::overwrite_existing);
    return Checkpoint::open(dir_.path());
  }
  static Error error_with(const Checkpoint& checkpoint) {
    return error_of([&] { find_layer_weights(checkpoint, checkpoint.config().layer(0)); });
  }

 private:
  TempDir dir_;
};

TEST_F(LayerWeightsOfTest, SomeExpertsInTheOrderAsked) {
  const Checkpoint checkpoint = open("mixtral-e8k2", [](auto&) {});
  const MoeLayerConfig config = checkpoint.config().layer(0);
  const MoeWeights all = find_layer_weights(checkpoint, config);
  const MoeWeights some = find_layer_weights(checkpoint, config, {5, 0, 5});
  ASSERT_EQ(some.experts.size(), 3U);
  EXPECT_EQ(some.experts[0].down.plain.data.distance_from(all.experts[5].down.plain.data), 0);
  EXPECT_EQ(some.experts[1].up.plain.data.distance_from(all.experts[0].up.plain.data), 0);
  EXPECT_EQ(some.experts[2].gate.plain.data.distance_from(all.experts[5].gate.plain.data), 0);
  EXPECT_EQ(some.router.rows, 8);
  EXPECT_TRUE(find_layer_weights(checkpoint, config, {}).experts.empty());
  for (const std::int64_t id : {-1, 8})
    EXPECT_EQ(error_of([&] { find_layer_weights(checkpoint, config, {id}); }).code(), ErrorCode::invalid_argument);
}

TEST_F(LayerWeightsOfTest, ConfigAndTensorsMustAgree) {
  const struct {
    const char* golden;
    const char* field;
    int value;
    const char* message;
  } cases[] = {
      {"mixtral-e8k2", "hidden_size", 95, "f32[8, 96], but config.json makes it [8, 95]"},
      {"mixtral-e8k2", "intermediate_size", 81, "experts.0.w1.weight: f32[80, 96], but config.json makes it [81, 96]"},
      {"mixtral-e8k2", "num_local_experts", 7, "but config.json makes it [7, 96]"},
      {"mixtral-e8k2", "num_local_experts", 2000000000, "but config.json makes it [2000000000, 96]"},
      {"qwen2-moe-e16k4", "shared_expert_intermediate_size", 36, "shared_expert.gate_proj.weight: f32[80, 64]"},
      {"deepseek-v3-e16k4-negbias", "n_shared_experts", 2, "shared_experts.gate_proj.weight: f32[20, 64]"},
  };
  for (const auto& wrong : cases) {
    SCOPED_TRACE(testing::Message() << wrong.golden << ' ' << wrong.field << " = " << wrong.value);
    const Error error = error_with(open(wrong.golden, [&](auto& config) { config[wrong.field] = wrong.value; }));
    EXPECT_EQ(error.code(), ErrorCode::invalid_data);
    EXPECT_THAT(error.what(), HasSubstr(wrong.message));
  }
}

TEST_F(LayerWeightsOfTest, AMissingTensorIsNamed) {
  const Error error = error_with(open("qwen3-moe-e64k8", [](auto& config) {
    config["model_type"] = "qwen2_moe";
    config["shared_expert_intermediate_size"] = 12;
  }));
  EXPECT_EQ(error.code(), ErrorCode::invalid_data);
  EXPECT_THAT(error.what(), HasSubstr("no tensor \"model.layers.0.mlp.shared_expert.gate_proj.weight\""));
}

TEST_F(LayerWeightsOfTest, IgnoredModulesArePlain) {
  // AWQ's "gate" may mean the router alone or gate_proj too. The stored tensors decide; here none is quantized.
  const Checkpoint awq = open("qwen3-moe-e64k8", [](auto& config) {
    config["quantization_config"] = {{"quant_method", "awq"},
                                     {"bits", 4},
                                     {"modules_to_not_convert", {"gate", "up_proj", "model.layers.0.mlp.exp"}}};
  });
  const MoeWeights weights = find_layer_weights(awq, awq.config().layer(0));
  EXPECT_FALSE(weights.experts.front().gate.quantized());
  EXPECT_FALSE(weights.experts.front().down.quantized());
  // The list names one expert only.
  const Checkpoint some = open("qwen3-moe-ct-int8-e8k2", [](auto& config) {
    config["quantization_config"]["ignore"].push_back("re:.*experts\\.3\\.");
  });
  const Error error = error_with(some);
  EXPECT_THAT(error.what(), HasSubstr("experts.3.gate_proj.weight: i8[48, 96] is not f32, f16 or bf16"));
}

TEST_F(LayerWeightsOfTest, QuantizedTensorsThatAreMissingAreNamed) {
  const Checkpoint checkpoint = open("mixtral-e8k2", [](auto& config) {
    config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  });
  const Error error = error_with(checkpoint);
  EXPECT_EQ(error.code(), ErrorCode::invalid_data);
  EXPECT_THAT(error.what(), HasSubstr("no quantized tensor of \"model.layers.0.block_sparse_moe.experts.0.w1\""));
}

class StaticScalesTest : public testing::Test {
 protected:
  Checkpoint open(float up_of_expert_1) { return with_static_scales(dir_, up_of_expert_1); }

  TempDir dir_;
};

TEST_F(StaticScalesTest, EveryExpertHasItsOwn) {
  const Checkpoint checkpoint = open(0.625F);
  const MoeWeights some = find_layer_weights(checkpoint, checkpoint.config().layer(0), {2, 0});
  EXPECT_EQ(some.experts[0].gate_up_input_scale, 0.75F);
  EXPECT_EQ(some.experts[0].down_input_scale, 3);
  EXPECT_EQ(some.experts[1].gate_up_input_scale, 0.5F);
  EXPECT_EQ(some.experts[1].down_input_scale, 1);
}

TEST_F(StaticScalesTest, GateAndUpHaveTheLargerOne) {
  for (const float up : {0.25F, 0.7F}) {
    const Checkpoint checkpoint = open(up);
    const MoeWeights weights = find_layer_weights(checkpoint, checkpoint.config().layer(0));
    EXPECT_EQ(weights.experts[1].gate_up_input_scale, std::max(up, 0.625F));
    EXPECT_EQ(weights.experts[2].gate_up_input_scale, 0.75F);
  }
}

TEST(StoredOptionsTest, AreWhatTheCheckpointSays) {
  const auto stored = [](const char* name) {
    const Checkpoint checkpoint = Checkpoint::open(data_path(std::string("goldens/") + name));
    const MoeLayerConfig config = checkpoint.config().layer(checkpoint.config().first_moe_layer());
    return stored_options(config, find_layer_weights(checkpoint, config));
  };
  EXPECT_EQ(stored("mixtral-odd257-bf16").dtype, DType::bf16);
  EXPECT_EQ(describe(stored("mixtral-e8k2").activations), describe(OperandQuant()));
  EXPECT_EQ(describe(stored("qwen3-moe-ct-int8-e8k2").activations), describe(QuantScheme::int8_w8a8().activations));
  EXPECT_EQ(describe(stored("mixtral-ct-fp8-e4k2").activations), describe(QuantScheme::fp8_w8a8().activations));
  const OperandQuant blocks{CodeType::f8_e4m3, ScaleGroup::per_group(128)};
  EXPECT_EQ(describe(stored("deepseek-v3-fp8block-e8k4").activations), describe(blocks));
}

TEST_F(LayerWeightsOfTest, WhatNobodyKnowsIsLoggedWhenTheLayerIsMade) {
  const Checkpoint checkpoint =
      open("mixtral-ct-fp8-e4k2", [](auto& config) { config["quantization_config"]["tea"] = "green"; });
  const MoeLayerConfig config = checkpoint.config().layer(0);
  const MoeWeights weights = find_layer_weights(checkpoint, config);
  std::vector<std::string> warnings;
  ContextOptions options;
  options.log = [&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) warnings.emplace_back(text);
  };
  const auto context = Context::create({select_devices().front()}, options);
  const Stream stream(*context);
  const MoeLayer layer(stream, config.shape, weights, stored_options(config, weights));
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("\"tea\" is not known and changes nothing here")));
}

TEST(StoredOptionsTest, OfARankWithoutExpertsHaveTheRoutersType) {
  const Checkpoint checkpoint = Checkpoint::open(data_path("goldens/mixtral-e8k2"));
  EXPECT_EQ(stored_dtype(find_layer_weights(checkpoint, checkpoint.config().layer(0), {})), DType::f32);
}

TEST(StoredOptionsTest, AnF32RouterSaysNothingOfQuantizedExperts) {
  const std::byte some{};
  MoeWeights weights;
  weights.router = {&some, DType::f32, 1, 1};
  WeightMatrix& up = weights.experts.emplace_back().up;
  up.codes.data = &some;
  EXPECT_EQ(stored_dtype(weights), DType::f32);
  up.scale = {&some, DType::f16, 1, 1};
  EXPECT_EQ(stored_dtype(weights), DType::f16);
  EXPECT_EQ(stored_dtype(weights, DType::bf16), DType::bf16);
  up.scale.dtype = DType::f8_e4m3;
  EXPECT_EQ(stored_dtype(weights), DType::f32);
  weights.router.dtype = DType::bf16;
  EXPECT_EQ(stored_dtype(weights, DType::f16), DType::bf16);
  up = HostMatrix(&some, DType::f16, 1, 1);
  EXPECT_EQ(stored_dtype(weights, DType::bf16), DType::f16);
}

}  // namespace
}  // namespace moecl::test
