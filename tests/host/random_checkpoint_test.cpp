#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/model_shapes.hpp>
#include <moecl/random_checkpoint.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>

#include "host/checkpoint/weight_quantizer.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// A released shape shrunk to `hidden` and an expert width of half that (whatever name it has there).
std::string small(const char* shape, int hidden) {
  json whole = json::parse(model_shape(shape).config_json);
  json& config = whole.contains("text_config") ? whole["text_config"] : whole;
  config["hidden_size"] = hidden;
  config["intermediate_size"] = hidden / 2;
  for (const char* width : {"moe_intermediate_size", "shared_expert_intermediate_size"})
    if (config.contains(width)) config[width] = hidden / 2;
  return whole.dump();
}

std::vector<double> values(const HostMatrix& matrix) {
  std::vector<double> result;
  const HostBytes bytes = matrix.in_memory().data;
  for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
    const std::byte* at = bytes.memory() + static_cast<std::size_t>(i) * size_bytes(matrix.dtype);
    float wide;
    std::uint16_t half;
    std::memcpy(&half, at, sizeof(half));
    if (matrix.dtype == DType::f32)
      std::memcpy(&wide, at, sizeof(wide));
    else
      wide = matrix.dtype == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
    result.push_back(wide);
  }
  return result;
}

MoeWeights weights_of(const Checkpoint& checkpoint) {
  return find_layer_weights(checkpoint, checkpoint.config().layer(checkpoint.config().first_moe_layer()));
}

TEST(ModelShapesTest, AreWhatTheModelCardsSay) {
  const struct {
    const char* name;
    std::int64_t hidden, intermediate;
    int experts, top_k, first_layer;
    std::int64_t shared;
    double routed_billions;  // weights of all routed experts
  } cases[] = {
      {"deepseek-v2-lite", 2048, 1408, 64, 6, 1, 2816, 14.4},   // of 15.7 B in all
      {"deepseek-v3", 7168, 2048, 256, 8, 3, 2048, 653.9},      // of 671 B
      {"glm-4.5-air", 4096, 1408, 128, 8, 1, 1408, 99.7},       // of 106 B
      {"mixtral-8x7b", 4096, 14336, 8, 2, 0, 0, 45.1},          // of 46.7 B
      {"olmoe-1b-7b", 2048, 1024, 64, 8, 0, 0, 6.4},            // of 6.9 B
      {"qwen2-57b-a14b", 3584, 2560, 64, 8, 0, 20480, 49.3},    // of 57.4 B
      {"qwen3-30b-a3b", 2048, 768, 128, 8, 0, 0, 29.0},         // of 30.5 B
      {"deepseek-v2", 5120, 1536, 160, 6, 1, 3072, 222.7},      // of 236 B
      {"dots.llm1", 4096, 1408, 128, 6, 1, 2816, 135.1},        // of 142 B
      {"ernie-4.5-21b-a3b", 2560, 1536, 64, 6, 1, 3072, 20.4},  // of 21 B
      {"gpt-oss-20b", 2880, 2880, 32, 4, 0, 0, 19.1},           // of 20.9 B
      {"gpt-oss-120b", 2880, 2880, 128, 4, 0, 0, 114.7},        // of 116.8 B
      {"granite-3.1-3b-a800m", 1536, 512, 40, 8, 0, 0, 3.0},    // of 3.3 B
      {"hunyuan-a13b", 4096, 3072, 64, 8, 0, 3072, 77.3},       // of 80 B
      {"jamba-1.5-mini", 4096, 14336, 16, 2, 1, 0, 45.1},       // of 52 B
      {"kimi-k2", 7168, 2048, 384, 8, 1, 2048, 1014.7},         // of 1.04 T
      {"kimi-linear-48b-a3b", 2304, 1024, 256, 8, 1, 1024, 47.1},
      {"lfm2-8b-a1b", 2048, 1792, 32, 4, 2, 0, 7.75},            // of 8.3 B
      {"llama-4-scout", 5120, 8192, 16, 1, 0, 8192, 96.6},       // of 109 B
      {"llama-4-maverick", 5120, 8192, 128, 1, 1, 8192, 386.5},  // of 400 B
      {"ling-mini-2.0", 2048, 512, 256, 8, 1, 512, 15.3},        // of 16 B
      {"minimax-m2", 3072, 1536, 256, 8, 0, 0, 224.7},           // of 230 B
      {"minimax-text-01", 6144, 9216, 32, 2, 0, 0, 434.9},       // of 456 B
      {"phi-3.5-moe", 4096, 6400, 16, 2, 0, 0, 40.3},            // of 41.9 B
      {"qwen3-235b-a22b", 4096, 1536, 128, 8, 0, 0, 227.1},      // of 235 B
      {"qwen3-next-80b-a3b", 2048, 512, 512, 10, 0, 512, 77.3},  // of 80 B
      {"qwen3-vl-30b-a3b", 2048, 768, 128, 8, 0, 0, 29.0},       // of 31 B
      {"trinity-mini", 2048, 1024, 128, 8, 2, 1024, 24.2},       // of 26 B
  };
  EXPECT_EQ(model_shapes().size(), std::size(cases));
  for (const auto& expected : cases) {
    SCOPED_TRACE(expected.name);
    const ModelConfig config = ModelConfig::parse(model_shape(expected.name).config_json, expected.name);
    EXPECT_EQ(config.first_moe_layer(), expected.first_layer);
    EXPECT_EQ(config.dtype, DType::bf16);
    const MoeShape& shape = config.moe.shape;
    EXPECT_EQ(shape.hidden, expected.hidden);
    EXPECT_EQ(shape.intermediate, expected.intermediate);
    EXPECT_EQ(shape.experts, expected.experts);
    EXPECT_EQ(shape.router.top_k, expected.top_k);
    EXPECT_EQ(shape.shared_intermediate, expected.shared);
    int sparse = 0;
    for (int layer = 0; layer < config.num_layers; ++layer) sparse += config.has_experts(layer) ? 1 : 0;
    const double weights = 3.0 * sparse * shape.experts * static_cast<double>(shape.hidden * shape.intermediate);
    EXPECT_NEAR(weights / 1e9, expected.routed_billions, 0.05 + 0.001 * expected.routed_billions);
  }
  const Error error = error_of([] { model_shape("gpt-5"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("deepseek-v3"));
}

TEST(RandomCheckpointTest, EveryShapeCanBeWrittenAndRead) {
  const TempDir dir;
  for (const ModelShape& shape : model_shapes()) {
    SCOPED_TRACE(shape.name);
    write_random_checkpoint(dir.file(shape.name), {small(shape.name, 32), 1, 0, DType::f16});
    const Checkpoint checkpoint = Checkpoint::open(dir.file(shape.name));
    EXPECT_EQ(checkpoint.config().dtype, DType::f16);
    EXPECT_EQ(checkpoint.config().num_layers, checkpoint.config().first_moe_layer() + 1);
    const MoeWeights weights = weights_of(checkpoint);
    EXPECT_EQ(weights.experts.size(), static_cast<std::size_t>(checkpoint.config().moe.shape.experts));
    EXPECT_EQ(weights.experts[0].down.plain.dtype, DType::f16);
  }
  EXPECT_EQ(dir.entries(), model_shapes().size()) << "temporary directories left";
}

TEST(RandomCheckpointTest, ValuesAreNormalWithDeviationOneOverRootOfFanIn) {
  const TempDir dir;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    write_random_checkpoint(dir.file(name(dtype)), {small("qwen3-30b-a3b", 512), 1, 8, dtype});
    const Checkpoint checkpoint = Checkpoint::open(dir.file(name(dtype)));
    const MoeWeights weights = weights_of(checkpoint);
    for (const HostMatrix& matrix : {weights.experts[3].gate.plain, weights.experts[3].down.plain}) {
      const double root = std::sqrt(static_cast<double>(matrix.columns));
      double mean = 0, square = 0, fourth = 0, beyond_two = 0;
      const std::vector<double> all = values(matrix);
      for (const double value : all) {
        const double x = value * root, n = static_cast<double>(all.size());
        mean += x / n;
        square += x * x / n;
        fourth += x * x * x * x / n;
        beyond_two += (std::abs(x) > 2 ? 1 : 0) / n;
      }
      // 131072 samples; five standard errors of each moment of a normal distribution.
      EXPECT_NEAR(mean, 0, 0.014);
      EXPECT_NEAR(square, 1, 0.02);
      EXPECT_NEAR(fourth, 3, 0.14);
      EXPECT_NEAR(beyond_two, 0.0455, 0.003);
    }
  }
}

TEST(RandomCheckpointTest, ATensorDependsOnSeedAndNameAlone) {
  const TempDir dir;
  const std::string config = small("deepseek-v3", 64);
  write_random_checkpoint(dir.file("whole"), {config, 2, 0, DType::bf16, 7});
  write_random_checkpoint(dir.file("again"), {config, 2, 0, DType::bf16, 7});
  write_random_checkpoint(dir.file("slice"), {config, 1, 16, DType::bf16, 7});
  write_random_checkpoint(dir.file("other"), {config, 1, 16, DType::bf16, 8});
  EXPECT_EQ(read_text(dir.file("whole/model.safetensors")), read_text(dir.file("again/model.safetensors")));
  const Checkpoint whole = Checkpoint::open(dir.file("whole")), slice = Checkpoint::open(dir.file("slice"));
  const Checkpoint other = Checkpoint::open(dir.file("other"));
  EXPECT_EQ(whole.config().first_moe_layer(), 3);
  EXPECT_EQ(whole.config().num_layers, 5);
  EXPECT_EQ(slice.config().moe.shape.experts, 16);
  EXPECT_EQ(values(weights_of(whole).experts[15].up.plain), values(weights_of(slice).experts[15].up.plain));
  EXPECT_NE(values(weights_of(whole).experts[15].up.plain), values(weights_of(whole).experts[14].up.plain));
  EXPECT_NE(values(weights_of(other).experts[15].up.plain), values(weights_of(slice).experts[15].up.plain));
  EXPECT_EQ(weights_of(slice).selection_bias.dtype, DType::f32);
}

TEST(RandomCheckpointTest, ATextOfLayersEndsWithTheLastThatIsWritten) {
  const TempDir dir;
  write_random_checkpoint(dir.file("model"),
                          {R"({"model_type": "nemotron_h", "hidden_size": 32, "hybrid_override_pattern": "ME*E",
                               "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                               "moe_shared_expert_intermediate_size": 8})",
                           1, 0, DType::f32});
  EXPECT_EQ(Checkpoint::open(dir.file("model")).config().num_layers, 2);
}

TEST(RandomCheckpointTest, SelectionBiasesHaveTheShapeThatTransformersDemands) {
  const TempDir dir;
  const auto shape_of = [&](const char* model, const char* name) {
    write_random_checkpoint(dir.file(model), {small(model, 32), 1, 8, DType::f32});
    return Checkpoint::open(dir.file(model)).tensor(name).shape;
  };
  EXPECT_THAT(shape_of("ernie-4.5-21b-a3b", "model.layers.1.mlp.moe_statics.e_score_correction_bias"),
              testing::ElementsAre(1, 8));
  EXPECT_THAT(shape_of("minimax-m2", "model.layers.0.block_sparse_moe.e_score_correction_bias"),
              testing::ElementsAre(8));
}

TEST(RandomCheckpointTest, ShardsWhenOneFileWouldBeTooLarge) {
  const TempDir dir;
  RandomCheckpoint checkpoint{small("qwen2-57b-a14b", 64), 2, 8, DType::bf16};
  write_random_checkpoint(dir.file("one"), checkpoint);
  checkpoint.shard_bytes = 50'000;
  write_random_checkpoint(dir.file("many"), checkpoint);
  EXPECT_FALSE(std::filesystem::exists(dir.file("many/model.safetensors")));
  const auto index = json::parse(read_text(dir.file("many/model.safetensors.index.json")));
  std::uint64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.file("many")))
    EXPECT_LT(entry.file_size(), 60'000U) << entry.path();
  const Checkpoint one = Checkpoint::open(dir.file("one")), many = Checkpoint::open(dir.file("many"));
  for (const auto& [name, shard] : index["weight_map"].items()) {
    const HostTensor a = one.tensor(name).in_memory(), b = many.tensor(name).in_memory();
    ASSERT_EQ(a.describe(), b.describe());
    ASSERT_EQ(std::memcmp(a.data.memory(), b.data.memory(), a.size_bytes), 0);
    total += a.size_bytes;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), 2U * (1 + 8 * 3 + 3 + 1));
}

TEST(RandomCheckpointTest, BadRequestsLeaveNothing) {
  const TempDir dir;
  const std::string config = small("deepseek-v3", 32);
  const std::string target = dir.file("model");
  json quantized = json::parse(config);
  quantized["quantization_config"] = {{"quant_method", "fp8"}};
  const struct {
    RandomCheckpoint request;
    ErrorCode code;
    const char* message;
  } cases[] = {
      {{config, 0}, ErrorCode::invalid_argument, "0 layers"},
      {{config, 59}, ErrorCode::invalid_argument, "59 layers wanted, the model has 58"},
      {{config, 1, 257}, ErrorCode::invalid_argument, "257 experts wanted, the model has 256"},
      {{config, 1, -1}, ErrorCode::invalid_argument, "-1 experts"},
      {{config, 1, 4}, ErrorCode::invalid_data, "8 experts per token of only 4"},
      {{config, 1, 20}, ErrorCode::invalid_data, "20 experts do not form 8"},
      {{config, 1, 0, DType::i8}, ErrorCode::invalid_argument, "not i8"},
      {{"{}", 1}, ErrorCode::invalid_data, "model_type"},
      {{quantized.dump(), 1}, ErrorCode::unsupported, "fp8"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.message);
    const Error error = error_of([&] { write_random_checkpoint(target, bad.request); });
    EXPECT_EQ(error.code(), bad.code);
    EXPECT_THAT(error.what(), HasSubstr(bad.message));
    EXPECT_EQ(dir.entries(), 0U);
  }
  std::filesystem::create_directory(target);
  write_random_checkpoint(target + "/", {config, 1, 16});  // an empty directory is fine
  const std::string before = read_text(target + "/config.json");
  EXPECT_EQ(error_of([&] { write_random_checkpoint(target, {config, 2, 16}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(read_text(target + "/config.json"), before);
  EXPECT_EQ(error_of([&] {
              write_random_checkpoint(target + "/config.json/x", {config, 1, 16});
            }).code(),
            ErrorCode::io_error);
  EXPECT_EQ(dir.entries(), 1U);
}

void expect_same(const WeightMatrix& found, const HostMatrix& plain, const OperandQuant& to) {
  const QuantizedWeights expected = quantize_weights(plain, to);
  ASSERT_TRUE(found.quantized());
  for (std::int64_t n = 0; n < plain.rows; ++n)
    for (std::int64_t k = 0; k < plain.columns; ++k)
      ASSERT_FLOAT_EQ(static_cast<float>(weight_element(found, n, k)),
                      static_cast<float>(weight_element(expected.matrix, n, k)))
          << n << ", " << k;
}

/// The plain checkpoint of the same seed has the numbers that were quantized.
TEST(RandomCheckpointTest, EverySchemeIsReadAsItWasQuantized) {
  for (const char* shape : {"mixtral-8x7b", "deepseek-v2-lite"})
    for (const auto& [name, scheme] : named_schemes()) {
      SCOPED_TRACE(testing::Message() << shape << ' ' << name);
      TempDir dir;
      RandomCheckpoint checkpoint;
      checkpoint.config_json = small(shape, 128);
      checkpoint.experts = 8;
      write_random_checkpoint(dir.file("plain"), checkpoint);
      checkpoint.scheme = scheme;
      write_random_checkpoint(dir.file("quantized"), checkpoint);
      const Checkpoint plain = Checkpoint::open(dir.file("plain")), quantized = Checkpoint::open(dir.file("quantized"));
      EXPECT_EQ(describe(quantized.config().moe.expert_scheme()), describe(scheme));
      const MoeWeights from = weights_of(plain), found = weights_of(quantized);
      expect_same(found.experts[5].gate, from.experts[5].gate.plain, scheme.weights);
      expect_same(found.experts[2].down, from.experts[2].down.plain, scheme.weights);
      if (from.shared.up.present()) expect_same(found.shared.up, from.shared.up.plain, scheme.weights);
      EXPECT_EQ(values(found.router), values(from.router));
    }
}

TEST(RandomCheckpointTest, ExpertsInOneTensorAreReleasedAsMxfp4Alone) {
  TempDir dir;
  RandomCheckpoint checkpoint;
  checkpoint.config_json = small("gpt-oss-20b", 128);
  checkpoint.experts = 8;
  checkpoint.scheme = QuantScheme::mxfp4_w4a16();
  write_random_checkpoint(dir.file("mxfp4"), checkpoint);
  const Checkpoint opened = Checkpoint::open(dir.file("mxfp4"));
  const MoeWeights weights = weights_of(opened);
  EXPECT_EQ(opened.config().moe.quantization.method, "mxfp4");
  EXPECT_TRUE(weights.experts[7].up.quantized());
  EXPECT_EQ(weights.experts[7].up.codes.type, CodeType::f4_e2m1);
  checkpoint.scheme = QuantScheme::int8_w8a8();
  EXPECT_EQ(error_of([&] { write_random_checkpoint(dir.file("int8"), checkpoint); }).code(), ErrorCode::unsupported);
  checkpoint.config_json = small("mixtral-8x7b", 100);
  checkpoint.scheme = QuantScheme::int4_w4a16();
  EXPECT_THAT(error_of([&] { write_random_checkpoint(dir.file("odd"), checkpoint); }).what(),
              HasSubstr("100 columns do not fill words of 8 codes"));
}

}  // namespace
}  // namespace moecl::test
