#include <moecl/model_config.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ModelConfig parse(const json& config) { return ModelConfig::parse(config.dump(), "here/config.json"); }

/// A valid config.json of DeepSeek-V3 with every field that moecl reads.
json deepseek_v3() {
  return {{"model_type", "deepseek_v3"},
          {"hidden_size", 64},
          {"num_hidden_layers", 6},
          {"n_routed_experts", 16},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 20},
          {"n_shared_experts", 2},
          {"n_group", 4},
          {"topk_group", 2},
          {"topk_method", "noaux_tc"},
          {"scoring_func", "sigmoid"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 2.5},
          {"first_k_dense_replace", 3},
          {"moe_layer_freq", 1},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"}};
}

json qwen2_moe() {
  return {{"model_type", "qwen2_moe"},        {"hidden_size", 64},
          {"num_hidden_layers", 6},           {"num_experts", 16},
          {"num_experts_per_tok", 4},         {"moe_intermediate_size", 20},
          {"norm_topk_prob", false},          {"decoder_sparse_step", 1},
          {"mlp_only_layers", json::array()}, {"shared_expert_intermediate_size", 80}};
}

/// `config` with `field` set, or left out where `value` is discarded.
json with(json config, const char* field, const json& value) {
  if (value.is_discarded())
    config.erase(field);
  else
    config[field] = value;
  return config;
}
const json absent = json(json::value_t::discarded);

std::vector<int> sparse_layers(const ModelConfig& config) {
  std::vector<int> layers;
  for (int layer = 0; layer < config.num_layers; ++layer)
    if (config.has_experts(layer)) layers.push_back(layer);
  return layers;
}

TEST(ModelConfigTest, ReadsEachFamily) {
  constexpr auto softmax = ScoreFunction::softmax, sigmoid = ScoreFunction::sigmoid;
  constexpr auto best = GroupScore::max, two = GroupScore::sum_of_top_2;
  const struct {
    const char* name;
    int layer;
    std::int64_t hidden, intermediate;
    int experts;
    int top_k, groups, kept;
    ScoreFunction score;
    GroupScore group_score;
    bool renormalise;
    float scaling;
    std::int64_t shared;
    bool shared_gate, bias;
    DType dtype;
  } cases[] = {
      // from the README of the goldens
      {"mixtral-e8k2", 0, 96, 80, 8, 2, 1, 1, softmax, best, true, 1, 0, false, false, DType::f32},
      {"mixtral-odd257-bf16", 0, 257, 63, 4, 1, 1, 1, softmax, best, true, 1, 0, false, false, DType::bf16},
      {"qwen2-moe-e16k4", 0, 64, 36, 16, 4, 1, 1, softmax, best, false, 1, 80, true, false, DType::f32},
      {"qwen2-moe-e60k4-norm-bf16", 0, 80, 14, 60, 4, 1, 1, softmax, best, true, 1, 72, true, false, DType::bf16},
      {"qwen3-moe-e64k8", 0, 96, 12, 64, 8, 1, 1, softmax, best, true, 1, 0, false, false, DType::f32},
      {"qwen3-moe-odd129-nonorm", 0, 129, 17, 16, 8, 1, 1, softmax, best, false, 1, 0, false, false, DType::f32},
      {"qwen3-moe-layer1-e32k8", 1, 72, 20, 32, 8, 1, 1, softmax, best, true, 1, 0, false, false, DType::f32},
      {"olmoe-e64k8", 0, 64, 12, 64, 8, 1, 1, softmax, best, false, 1, 0, false, false, DType::f32},
      {"deepseek-v2-greedy-e64k6", 0, 64, 12, 64, 6, 1, 1, softmax, best, false, 1, 24, false, false, DType::f32},
      {"deepseek-v2-group-e32k6", 1, 96, 20, 32, 6, 8, 3, softmax, best, false, 16, 40, false, false, DType::f32},
      {"deepseek-v3-e32k8-g8", 0, 96, 20, 32, 8, 8, 4, sigmoid, two, true, 2.5F, 20, false, true, DType::f32},
      {"deepseek-v3-e16k4-g4-dense1-bf16", 1, 160, 28, 16, 4, 4, 2, sigmoid, two, true, 1.5F, 56, false, true,
       DType::bf16},
      {"glm4-moe-e16k4", 0, 160, 24, 16, 4, 1, 1, sigmoid, two, true, 1, 24, false, true, DType::f32},
  };
  for (const auto& expected : cases) {
    SCOPED_TRACE(expected.name);
    const ModelConfig config = ModelConfig::load(data_path("goldens/" + std::string(expected.name) + "/config.json"));
    EXPECT_EQ(config.first_moe_layer(), expected.layer);
    EXPECT_EQ(config.dtype, expected.dtype);
    const MoeLayerConfig layer = config.layer(expected.layer);
    EXPECT_EQ(layer.layer, expected.layer);
    EXPECT_FALSE(layer.quantization.present());
    const MoeShape& shape = layer.shape;
    EXPECT_EQ(shape.hidden, expected.hidden);
    EXPECT_EQ(shape.intermediate, expected.intermediate);
    EXPECT_EQ(shape.experts, expected.experts);
    EXPECT_EQ(shape.shared_intermediate, expected.shared);
    EXPECT_EQ(shape.shared_gate, expected.shared_gate);
    EXPECT_EQ(shape.selection_bias, expected.bias);
    EXPECT_EQ(shape.activation.function, ActivationFunction::silu);
    EXPECT_EQ(shape.router.top_k, expected.top_k);
    EXPECT_EQ(shape.router.groups, expected.groups);
    EXPECT_EQ(shape.router.kept_groups, expected.kept);
    EXPECT_EQ(shape.router.score, expected.score);
    EXPECT_EQ(shape.router.order, ScoreOrder::before_top_k);
    EXPECT_EQ(shape.router.group_score, expected.group_score);
    EXPECT_EQ(shape.router.renormalise, expected.renormalise);
    EXPECT_EQ(shape.router.renormalise_epsilon, expected.bias ? 1e-20F : 0.0F);
    EXPECT_EQ(shape.router.scaling_factor, expected.scaling);
    EXPECT_FALSE(shape.router.weight_on_input);
  }
}

TEST(ModelConfigTest, NamesTheTensorsOfALayer) {
  const MoeTensorNames names = parse(qwen2_moe()).layer(5).names;
  EXPECT_EQ(names.router, "model.layers.5.mlp.gate.weight");
  EXPECT_EQ(names.selection_bias, "");
  EXPECT_EQ(names.experts.front().down, "model.layers.5.mlp.experts.{expert}.down_proj.weight");
  EXPECT_EQ(names.shared.up, "model.layers.5.mlp.shared_expert.up_proj.weight");
  EXPECT_EQ(names.shared_gate, "model.layers.5.mlp.shared_expert_gate.weight");
  const MoeTensorNames v3 = parse(deepseek_v3()).layer(3).names;
  EXPECT_EQ(v3.selection_bias, "model.layers.3.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(v3.shared.gate, "model.layers.3.mlp.shared_experts.gate_proj.weight");
}

using Layers = std::vector<int>;

TEST(ModelConfigTest, KnowsWhichLayersHaveExperts) {
  EXPECT_EQ(sparse_layers(parse(deepseek_v3())), (Layers{3, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(deepseek_v3(), "first_k_dense_replace", 0))), (Layers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(with(deepseek_v3(), "first_k_dense_replace", 1), "moe_layer_freq", 2))),
            (Layers{2, 4}));
  EXPECT_EQ(sparse_layers(parse(qwen2_moe())), (Layers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(qwen2_moe(), "decoder_sparse_step", 2))), (Layers{1, 3, 5}));
  EXPECT_EQ(sparse_layers(parse(with(qwen2_moe(), "mlp_only_layers", {4, 0}))), (Layers{1, 2, 3, 5}));
  EXPECT_EQ(sparse_layers(parse(with(qwen2_moe(), "mlp_only_layers", nullptr))), (Layers{0, 1, 2, 3, 4, 5}));

  const ModelConfig v3 = parse(deepseek_v3());
  EXPECT_THAT(error_of([&] { v3.layer(2); }).what(), HasSubstr("layer 2 is dense; the first layer with experts is 3"));
  EXPECT_EQ(error_of([&] { v3.layer(6); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { v3.layer(-1); }).code(), ErrorCode::invalid_argument);
  const ModelConfig dense = parse(with(deepseek_v3(), "first_k_dense_replace", 6));
  EXPECT_EQ(error_of([&] { dense.first_moe_layer(); }).code(), ErrorCode::invalid_data);
}

TEST(ModelConfigTest, AbsentFieldsTakeTheDefaultsOfTransformers) {
  json bare = deepseek_v3();
  for (const char* field :
       {"n_shared_experts", "n_group", "topk_group", "topk_method", "scoring_func", "norm_topk_prob",
        "routed_scaling_factor", "first_k_dense_replace", "moe_layer_freq", "hidden_act", "torch_dtype"})
    bare.erase(field);
  const ModelConfig v3 = parse(bare);
  EXPECT_EQ(v3.dtype, std::nullopt);
  EXPECT_EQ(v3.first_moe_layer(), 3);
  const MoeShape shape = v3.layer(3).shape;
  EXPECT_EQ(shape.shared_intermediate, 20);
  EXPECT_EQ(shape.router.groups, 8);
  EXPECT_EQ(shape.router.kept_groups, 4);
  EXPECT_EQ(shape.router.score, ScoreFunction::sigmoid);
  EXPECT_EQ(shape.router.scaling_factor, 2.5F);
  EXPECT_TRUE(shape.router.renormalise);
  EXPECT_TRUE(shape.selection_bias);

  const MoeShape v2 = parse(with(bare, "model_type", "deepseek_v2")).layer(0).shape;
  EXPECT_EQ(v2.shared_intermediate, 40);
  EXPECT_EQ(v2.router.groups, 1);
  EXPECT_EQ(v2.router.score, ScoreFunction::softmax);
  EXPECT_EQ(v2.router.scaling_factor, 1.0F);
  EXPECT_FALSE(v2.router.renormalise);
  EXPECT_FALSE(v2.selection_bias);
  EXPECT_EQ(
      parse(with(with(bare, "model_type", "glm4_moe"), "n_shared_experts", nullptr)).layer(1).shape.shared_intermediate,
      0);
}

TEST(ModelConfigTest, FamiliesThatDifferInMoreThanNumbers) {
  const auto golden = [](const char* name) {
    return ModelConfig::load(data_path("goldens/" + std::string(name) + "/config.json"));
  };
  const MoeLayerConfig phimoe = golden("phimoe-e8-wide-jitter").layer(0);
  EXPECT_EQ(phimoe.shape.router.score, ScoreFunction::sparse_mixer);
  EXPECT_EQ(phimoe.shape.router.order, ScoreOrder::after_top_k);
  EXPECT_EQ(phimoe.shape.router.mixer_jitter, 0.1F);
  EXPECT_FALSE(phimoe.shape.router.renormalise);

  const MoeLayerConfig granite = golden("granitemoe-e40k8").layer(0);
  EXPECT_EQ(granite.shape.router.order, ScoreOrder::after_top_k);
  EXPECT_EQ(granite.shape.shared_intermediate, 0);
  EXPECT_EQ(granite.names.experts[0].gate, "model.layers.0.block_sparse_moe.input_linear.weight");
  EXPECT_EQ(granite.names.experts[0].up, granite.names.experts[0].gate);
  EXPECT_TRUE(granite.names.experts[0].stacked);

  const ModelConfig llama4 = golden("llama4-e16k1-bf16");
  EXPECT_EQ(llama4.family, "llama4_text");
  EXPECT_EQ(llama4.dtype, DType::bf16);
  const MoeLayerConfig llama4_layer = llama4.layer(0);
  EXPECT_EQ(llama4_layer.shape.router.score, ScoreFunction::sigmoid);
  EXPECT_EQ(llama4_layer.shape.router.order, ScoreOrder::after_top_k);
  EXPECT_TRUE(llama4_layer.shape.router.weight_on_input);
  EXPECT_EQ(llama4_layer.shape.shared_intermediate, 32);
  EXPECT_EQ(llama4_layer.names.router, "language_model.model.layers.0.feed_forward.router.weight");
  EXPECT_TRUE(llama4_layer.names.experts[0].transposed);

  const MoeLayerConfig gpt_oss = golden("gpt-oss-bf16form-e8k4").layer(0);
  EXPECT_TRUE(gpt_oss.shape.router_bias);
  EXPECT_TRUE(gpt_oss.shape.expert_bias);
  EXPECT_EQ(gpt_oss.shape.activation.function, ActivationFunction::swigluoai);
  EXPECT_EQ(gpt_oss.shape.activation.limit, 7.0F);
  EXPECT_TRUE(gpt_oss.names.experts[0].alternating);
  EXPECT_EQ(gpt_oss.names.experts[0].down_bias, "model.layers.0.mlp.experts.down_proj_bias");
}

TEST(ModelConfigTest, LayersWithExpertsAreSaidInManyWays) {
  const json llama4 = {{"model_type", "llama4_text"}, {"hidden_size", 64},      {"num_hidden_layers", 6},
                       {"num_local_experts", 4},      {"intermediate_size", 8}, {"num_experts_per_tok", 1}};
  EXPECT_EQ(sparse_layers(parse(llama4)), (Layers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(llama4, "interleave_moe_layer_step", 2))), (Layers{1, 3, 5}));
  EXPECT_EQ(sparse_layers(parse(with(with(llama4, "interleave_moe_layer_step", 2), "moe_layers", {4, 0}))),
            (Layers{0, 4}));
  EXPECT_EQ(sparse_layers(parse(with(llama4, "moe_layers", json::array()))), (Layers{}));
  const Error two = error_of([&] { parse(with(llama4, "num_experts_per_tok", 2)); });
  EXPECT_EQ(two.code(), ErrorCode::unsupported);
  EXPECT_THAT(two.what(), HasSubstr("here/config.json: 2 experts per token"));
  const json jamba = {{"model_type", "jamba"}, {"hidden_size", 64},      {"num_hidden_layers", 8},
                      {"num_experts", 4},      {"intermediate_size", 8}, {"num_experts_per_tok", 2}};
  EXPECT_EQ(sparse_layers(parse(jamba)), (Layers{1, 3, 5, 7}));
  EXPECT_EQ(sparse_layers(parse(with(with(jamba, "expert_layer_period", 3), "expert_layer_offset", 0))),
            (Layers{0, 3, 6}));
  const json ernie = {{"model_type", "ernie4_5_moe"}, {"hidden_size", 64},          {"num_hidden_layers", 8},
                      {"moe_num_experts", 4},         {"moe_intermediate_size", 8}, {"moe_k", 2},
                      {"moe_layer_start_index", 2},   {"moe_layer_end_index", 5}};
  EXPECT_EQ(sparse_layers(parse(ernie)), (Layers{2, 3, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(with(ernie, "moe_layer_end_index", -1), "moe_layer_interval", 2))),
            (Layers{3, 5, 7}));
  const json nemotron = with(with(deepseek_v3(), "model_type", "nemotron_h"), "moe_shared_expert_intermediate_size", 8);
  const json uncounted = with(nemotron, "num_hidden_layers", absent);
  const json listed = with(uncounted, "layers_block_type", {"mamba", "moe", "attention", "moe"});
  EXPECT_EQ(parse(listed).num_layers, 4);
  EXPECT_EQ(sparse_layers(parse(listed)), (Layers{1, 3}));
  EXPECT_EQ(parse(with(uncounted, "hybrid_override_pattern", "ME*-E")).num_layers, 5);
  EXPECT_EQ(parse(with(nemotron, "hybrid_override_pattern", "ME*-E")).num_layers, 6);
  EXPECT_THAT(error_of([&] { parse(uncounted); }).what(), HasSubstr("no \"num_hidden_layers\""));
  EXPECT_THAT(error_of([&] { parse(with(uncounted, "layers_block_type", 3)); }).what(), HasSubstr("not a list"));
  const json types = with(deepseek_v3(), "mlp_layer_types", {"sparse", "dense", "sparse", "dense", "dense", "dense"});
  EXPECT_EQ(sparse_layers(parse(types)), (Layers{0, 2}));
  const json step3 = {{"model_type", "step3_text"}, {"hidden_size", 64},          {"num_hidden_layers", 6},
                      {"moe_num_experts", 4},       {"moe_intermediate_size", 8}, {"moe_top_k", 2},
                      {"share_expert_dim", 8},      {"moe_layers_enum", "4, 2,5"}};
  EXPECT_EQ(sparse_layers(parse(step3)), (Layers{2, 4, 5}));
  EXPECT_EQ(sparse_layers(parse(with(step3, "moe_layers_enum", absent))), (Layers{1, 2, 3, 4, 5}));
  EXPECT_THAT(error_of([&] { parse(with(step3, "moe_layers_enum", "4,x")); }).what(),
              HasSubstr("\"x\", not an integer"));
}

TEST(ModelConfigTest, AListWithOneValueForEachLayerIsThatValue) {
  const json hunyuan = {{"model_type", "hunyuan_v1_moe"}, {"hidden_size", 64},
                        {"num_hidden_layers", 3},         {"num_experts", 8},
                        {"intermediate_size", 8},         {"moe_topk", {2, 2, 2}}};
  EXPECT_EQ(parse(hunyuan).layer(0).shape.router.top_k, 2);
  EXPECT_EQ(parse(with(hunyuan, "moe_intermediate_size", {8, 8, 8})).layer(0).shape.intermediate, 8);
  EXPECT_THAT(error_of([&] {
                parse(with(hunyuan, "moe_intermediate_size", {9, 9, 9}));
              }).what(),
              HasSubstr("\"intermediate_size\" is 8 but \"moe_intermediate_size\" is [9,9,9]"));
  EXPECT_THAT(error_of([&] { parse(with(hunyuan, "moe_topk", {1, 2})); }).what(), HasSubstr("[1,2], not an integer"));
}

TEST(ModelConfigTest, ListsGiveEachLayerItsOwnShape) {
  const json hunyuan = {{"model_type", "hunyuan_v1_moe"}, {"hidden_size", 64},      {"num_hidden_layers", 3},
                        {"num_experts", {8, 8, 16}},      {"intermediate_size", 8}, {"moe_topk", {1, 2, 2}},
                        {"num_shared_expert", {1, 0, 2}}};
  const ModelConfig config = parse(hunyuan);
  std::vector<std::int64_t> top_k, experts, shared;
  for (int layer = 0; layer < 3; ++layer) {
    const MoeShape shape = config.layer(layer).shape;
    top_k.push_back(shape.router.top_k);
    experts.push_back(shape.experts);
    shared.push_back(shape.shared_intermediate);
  }
  EXPECT_THAT(top_k, testing::ElementsAre(1, 2, 2));
  EXPECT_THAT(experts, testing::ElementsAre(8, 8, 16));
  EXPECT_THAT(shared, testing::ElementsAre(8, 0, 16));
  EXPECT_EQ(config.layer(1).names.shared.down, "");
  EXPECT_THAT(error_of([&] {
                parse(with(hunyuan, "moe_topk", {1, 9, 2}));
              }).what(),
              HasSubstr("9 experts per token of only 8"));
  // Layers without experts may say anything.
  const json freq =
      with(with(deepseek_v3(), "moe_layer_freq", {0, 1, 0, 0, 1, 1}), "num_experts_per_tok", {0, 1, 99, 0, 2, 3});
  EXPECT_EQ(sparse_layers(parse(freq)), (Layers{1, 4, 5}));
  EXPECT_EQ(parse(freq).layer(1).shape.router.top_k, 1);
  EXPECT_EQ(parse(freq).layer(5).shape.router.top_k, 3);
  // A router spec holds for all layers.
  const ModelConfig with_spec = ModelConfig::parse(hunyuan.dump(), "x", R"({"router": {"renormalise": false}})");
  for (int layer = 0; layer < 3; ++layer) EXPECT_FALSE(with_spec.layer(layer).shape.router.renormalise);
  EXPECT_EQ(with_spec.layer(2).shape.experts, 16);
}

TEST(ModelConfigTest, FieldsOfMembers) {
  const json ffn = {{"moe_num_experts", 16}, {"moe_top_k", 4}, {"ffn_hidden_size", 24}};
  const json dbrx = {{"model_type", "dbrx"}, {"d_model", 64}, {"n_layers", 6}, {"ffn_config", ffn}};
  const auto with_norm = [&](const json& norm) {
    return with(dbrx, "ffn_config", with(ffn, "moe_normalize_expert_weights", norm));
  };
  const ModelConfig config = parse(dbrx);
  EXPECT_EQ(config.num_layers, 6);
  const MoeLayerConfig layer = config.layer(5);
  EXPECT_EQ(layer.shape.hidden, 64);
  EXPECT_EQ(layer.shape.intermediate, 24);
  EXPECT_EQ(layer.shape.experts, 16);
  EXPECT_EQ(layer.shape.router.top_k, 4);
  EXPECT_TRUE(layer.shape.router.renormalise);
  EXPECT_EQ(layer.names.experts[0].up, "transformer.blocks.5.ffn.experts.mlp.v1");
  EXPECT_TRUE(parse(with_norm(1)).layer(0).shape.router.renormalise);
  EXPECT_FALSE(parse(with_norm(nullptr)).layer(0).shape.router.renormalise);
  const Error norm = error_of([&] { parse(with_norm(2.0)); });
  EXPECT_EQ(norm.code(), ErrorCode::unsupported);
  EXPECT_THAT(norm.what(), HasSubstr("\"ffn_config.moe_normalize_expert_weights\" is 2"));
  EXPECT_THAT(error_of([&] {
                parse(with(dbrx, "ffn_config", {{"moe_top_k", 1}}));
              }).what(),
              HasSubstr("no \"ffn_config.ffn_hidden_size\""));
  EXPECT_THAT(error_of([&] { parse(with(dbrx, "ffn_config", 3)); }).what(),
              HasSubstr("no \"ffn_config.ffn_hidden_size\""));
}

TEST(ModelConfigTest, TwoKindsOfExpertsAreRefused) {
  const json text = {{"hidden_size", 64}, {"num_hidden_layers", 3}, {"moe_num_experts", 64}};
  const Error error = error_of([&] { parse({{"model_type", "ernie4_5_vl_moe"}, {"text_config", text}}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("text and vision tokens have experts of their own"));
}

TEST(ModelConfigTest, ExpertsWithoutAGate) {
  const json nemotron = {{"model_type", "nemotron_h"},
                         {"hidden_size", 64},
                         {"num_hidden_layers", 6},
                         {"n_routed_experts", 8},
                         {"num_experts_per_tok", 2},
                         {"moe_intermediate_size", 24},
                         {"moe_shared_expert_intermediate_size", 40},
                         {"hybrid_override_pattern", "MEM*-E"}};
  EXPECT_EQ(sparse_layers(parse(nemotron)), (Layers{1, 5}));
  const json types = with(nemotron, "layers_block_type", {"moe", "mamba", "attention", "mlp", "moe", "mamba"});
  EXPECT_EQ(sparse_layers(parse(types)), (Layers{0, 4}));
  const MoeLayerConfig layer = parse(nemotron).layer(5);
  EXPECT_FALSE(layer.shape.activation.gated);
  EXPECT_EQ(layer.shape.activation.function, ActivationFunction::relu2);
  EXPECT_EQ(layer.shape.shared_intermediate, 40);
  EXPECT_EQ(layer.names.experts[0].gate, "");
  EXPECT_EQ(layer.names.experts[0].up, "backbone.layers.5.mixer.experts.{expert}.up_proj.weight");
  const Error error = error_of([&] { parse(with(nemotron, "moe_latent_size", 16)); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("\"moe_latent_size\" asks for what no layer here computes"));
}

TEST(ModelConfigTest, AModelInsideAnother) {
  json text = deepseek_v3();
  text["model_type"] = "kimi_k2";
  const json whole = {
      {"model_type", "kimi_k25"}, {"text_config", text}, {"quantization_config", {{"quant_method", "fp8"}}}};
  const MoeLayerConfig layer = parse(whole).layer(3);
  EXPECT_EQ(layer.names.router, "language_model.model.layers.3.mlp.gate.weight");
  EXPECT_EQ(layer.quantization.method, "fp8");
  EXPECT_THAT(error_of([&] { parse({{"model_type", "kimi_k25"}}); }).what(), HasSubstr("no object \"text_config\""));
  EXPECT_THAT(error_of([&] { parse(with(whole, "text_config", with(text, "hidden_size", absent))); }).what(),
              HasSubstr("config.json: text_config: no \"hidden_size\""));
}

TEST(ModelConfigTest, NormalisedDeepseekV2IsScaledToo) {
  const RouterSpec router =
      parse(with(with(deepseek_v3(), "model_type", "deepseek_v2"), "topk_method", "greedy")).layer(3).shape.router;
  EXPECT_TRUE(router.renormalise);
  EXPECT_EQ(router.scaling_factor, 2.5F);
}

TEST(ModelConfigTest, ExpertCountUnderEitherName) {
  const json renamed = with(with(qwen2_moe(), "num_experts", absent), "num_local_experts", 8);
  EXPECT_EQ(parse(renamed).layer(0).shape.experts, 8);
  const Error error = error_of([&] { parse(with(renamed, "num_experts", 16)); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_data);
  EXPECT_THAT(error.what(), HasSubstr("\"num_experts\" is 16 but \"num_local_experts\" is 8"));
}

TEST(ModelConfigTest, QuantizationIsNamed) {
  EXPECT_EQ(parse(with(deepseek_v3(), "quantization_config", {{"quant_method", "fp8"}})).layer(3).quantization.method,
            "fp8");
  EXPECT_FALSE(parse(with(deepseek_v3(), "quantization_config", nullptr)).layer(3).quantization.present());
}

TEST(ModelConfigTest, BadFieldsGetAClearError) {
  const struct {
    const char* field;
    json value;
    ErrorCode code;
    const char* message;
  } cases[] = {
      {"model_type", absent, ErrorCode::invalid_data, "no \"model_type\""},
      {"model_type", 3, ErrorCode::invalid_data, "not a string"},
      {"model_type", "gpt2", ErrorCode::unsupported, "mixtral, qwen2_moe, qwen3_moe, qwen3_next"},
      {"hidden_size", absent, ErrorCode::invalid_data, "no \"hidden_size\""},
      {"hidden_size", 0, ErrorCode::invalid_data, "\"hidden_size\" or \"d_model\" is 0"},
      {"hidden_size", -64, ErrorCode::invalid_data, "is -64"},
      {"hidden_size", 64.0, ErrorCode::invalid_data, "64.0, not an integer"},
      {"hidden_size", "64", ErrorCode::invalid_data, "not an integer"},
      {"hidden_size", std::uint64_t{1} << 63, ErrorCode::invalid_data, "not an integer"},
      {"hidden_size", std::int64_t{1} << 31, ErrorCode::invalid_data, "2147483648"},
      {"num_hidden_layers", absent, ErrorCode::invalid_data, "num_hidden_layers"},
      {"num_hidden_layers", 2000000000, ErrorCode::invalid_data, "2000000000 layers"},
      {"n_routed_experts", absent, ErrorCode::invalid_data, "no \"n_routed_experts\" or \"num_local_experts\""},
      {"n_routed_experts", 18, ErrorCode::invalid_data, "18 experts do not form 4 equal groups"},
      {"n_routed_experts", 4, ErrorCode::invalid_data, "4 experts per token, 2 kept groups of 1 have fewer"},
      {"num_experts_per_tok", 17, ErrorCode::invalid_data, "17 experts per token of only 16"},
      {"num_experts_per_tok", 9, ErrorCode::invalid_data, "2 kept groups of 4"},
      {"num_experts_per_tok", 0, ErrorCode::invalid_data, "is 0"},
      {"moe_intermediate_size", absent, ErrorCode::invalid_data, "moe_intermediate_size"},
      {"n_group", 0, ErrorCode::invalid_data, "n_group"},
      {"topk_group", 5, ErrorCode::invalid_data, "5 of only 4 groups"},
      {"topk_method", "best", ErrorCode::unsupported, "selection method \"best\""},
      {"scoring_func", "tanh", ErrorCode::unsupported, "\"tanh\" is not one of softmax, sigmoid"},
      {"norm_topk_prob", 1, ErrorCode::invalid_data, "not true or false"},
      {"routed_scaling_factor", "2", ErrorCode::invalid_data, "not a number"},
      {"routed_scaling_factor", 0, ErrorCode::invalid_data, "scaling factor 0"},
      {"routed_scaling_factor", 1e300, ErrorCode::invalid_data, "finite"},
      {"n_shared_experts", -1, ErrorCode::invalid_data, "-1 shared experts"},
      {"n_shared_experts", std::int64_t{1} << 40, ErrorCode::invalid_data, "shared experts"},
      {"first_k_dense_replace", -1, ErrorCode::invalid_data, "first_k_dense_replace"},
      {"moe_layer_freq", 0, ErrorCode::invalid_data, "moe_layer_freq"},
      {"moe_layer_freq", {0, 1, 1}, ErrorCode::invalid_data, "[0,1,1], not an integer"},
      {"moe_layer_freq", {0, 1, 1, 2, 0, 0}, ErrorCode::invalid_data, "says 2 of layer 3, not 0 or 1"},
      {"hidden_act", "tanh", ErrorCode::unsupported, "\"tanh\" is not one of silu"},
      {"torch_dtype", "int4", ErrorCode::unsupported, "int4"},
      {"quantization_config", "fp8", ErrorCode::invalid_data, "not an object"},
      {"quantization_config", json::object(), ErrorCode::invalid_data, "no \"quant_method\""},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(testing::Message() << bad.field << " = " << bad.value.dump());
    const Error error = error_of([&] { parse(with(deepseek_v3(), bad.field, bad.value)); });
    EXPECT_EQ(error.code(), bad.code);
    EXPECT_THAT(error.what(), HasSubstr(bad.message));
    EXPECT_THAT(error.what(), HasSubstr("here/config.json"));
  }
  EXPECT_THAT(error_of([] { parse(with(qwen2_moe(), "mlp_only_layers", 3)); }).what(), HasSubstr("not a list"));
  EXPECT_THAT(error_of([] { parse(with(qwen2_moe(), "mlp_only_layers", {"3"})); }).what(), HasSubstr("not an integer"));
  EXPECT_THAT(error_of([] { parse(with(qwen2_moe(), "shared_expert_intermediate_size", absent)); }).what(),
              HasSubstr("shared_expert_intermediate_size"));
  for (const char* text : {"", "[]", "{", "{\"model_type\":\"mixtral\",\"model_type\":\"olmoe\"}", "nan"})
    EXPECT_EQ(error_of([&] { ModelConfig::parse(text, "x"); }).code(), ErrorCode::invalid_data) << text;
  EXPECT_EQ(error_of([] { ModelConfig::load("missing/config.json"); }).code(), ErrorCode::io_error);
}

}  // namespace
}  // namespace moecl::test
