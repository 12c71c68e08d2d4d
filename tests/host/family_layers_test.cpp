// Families without a golden: a random checkpoint in the released layout, run, against the block computed from the
// file's tensors by their published names and from the family's published formulas, in double precision.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/random_checkpoint.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <set>

#include "host/model_families.hpp"
#include "tests/host/family_reference.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;

constexpr std::size_t hidden = reference_hidden, tokens = 7;

json config(const char* model_type, const json& fields) {
  json whole = {{"model_type", model_type}, {"hidden_size", hidden}, {"num_hidden_layers", 3}, {"hidden_act", "silu"}};
  whole.update(fields);
  return whole;
}

std::vector<Family> families() {
  const Network mlp =
      gate_up_down("model.layers.1.mlp.experts.#.gate_proj.weight", "model.layers.1.mlp.experts.#.up_proj.weight",
                   "model.layers.1.mlp.experts.#.down_proj.weight", 10);
  const Network mlp_0 =
      gate_up_down("model.layers.0.mlp.experts.#.gate_proj.weight", "model.layers.0.mlp.experts.#.up_proj.weight",
                   "model.layers.0.mlp.experts.#.down_proj.weight", 10);
  const auto shared = [](const char* gate, const char* up, const char* down, std::size_t width) {
    return gate_up_down(gate, up, down, width);
  };
  const Network shared_experts =
      shared("model.layers.1.mlp.shared_experts.gate_proj.weight", "model.layers.1.mlp.shared_experts.up_proj.weight",
             "model.layers.1.mlp.shared_experts.down_proj.weight", 20);
  const auto ungated = [](const char* up, const char* down, std::size_t width) {
    Network network = gate_up_down("", up, down, width);
    network.gated = false;
    return network;
  };
  Network ernie_shared = shared_experts;
  ernie_shared.biased = true;
  return {
      {"qwen3_next",
       config("qwen3_next", {{"num_experts", 9},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"shared_expert_intermediate_size", 13}}),
       0, "model.layers.0.mlp.gate.weight", "", mlp_0,
       shared("model.layers.0.mlp.shared_expert.gate_proj.weight", "model.layers.0.mlp.shared_expert.up_proj.weight",
              "model.layers.0.mlp.shared_expert.down_proj.weight", 13),
       "model.layers.0.mlp.shared_expert_gate.weight", softmax_top(3, true)},
      {"qwen3_omni_moe",
       {{"model_type", "qwen3_omni_moe"},
        {"thinker_config",
         {{"text_config", config("qwen3_omni_moe_text",
                                 {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 10}})}}}},
       0,
       "thinker.model.layers.0.mlp.gate.weight",
       "",
       gate_up_down("thinker.model.layers.0.mlp.experts.#.gate_proj.weight",
                    "thinker.model.layers.0.mlp.experts.#.up_proj.weight",
                    "thinker.model.layers.0.mlp.experts.#.down_proj.weight", 10),
       {},
       "",
       softmax_top(3, true)},
      {"deepseek_v2 with norm_topk_prob",
       config("deepseek_v2", {{"n_routed_experts", 12},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"n_shared_experts", 2},
                              {"norm_topk_prob", true},
                              {"routed_scaling_factor", 16.0},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "", mlp, shared_experts, "",
       [](const Row& logits, const Row&) {
         const Row scores = softmax(logits);
         return weighted(scores, best(scores, 3), true, 0, 16);
       }},
      {"kimi_k2",
       config("kimi_k2", {{"n_routed_experts", 12},
                          {"num_experts_per_tok", 3},
                          {"moe_intermediate_size", 10},
                          {"n_shared_experts", 2},
                          {"n_group", 1},
                          {"topk_group", 1},
                          {"first_k_dense_replace", 1},
                          {"routed_scaling_factor", 2.827}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.827)},
      {"dots1",
       config("dots1", {{"n_routed_experts", 12},
                        {"num_experts_per_tok", 3},
                        {"moe_intermediate_size", 10},
                        {"n_shared_experts", 2},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"norm_topk_prob", true},
                        {"routed_scaling_factor", 2.5}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5)},
      {"exaone_moe",
       config("exaone_moe", {{"num_experts", 12},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"num_shared_experts", 2},
                             {"n_group", 4},
                             {"topk_group", 2},
                             {"mlp_layer_types", {"dense", "sparse", "sparse"}}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5, 4, 2)},
      {"glm4_moe_lite",
       config("glm4_moe_lite", {{"n_routed_experts", 12},
                                {"num_experts_per_tok", 3},
                                {"moe_intermediate_size", 10},
                                {"n_shared_experts", 2}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 1.8)},
      {"glm_moe_dsa",
       config("glm_moe_dsa", {{"n_routed_experts", 12},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"n_shared_experts", 2},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.5)},
      {"solar_open",
       config("solar_open", {{"n_routed_experts", 12},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"n_shared_experts", 0},
                             {"norm_topk_prob", false}}),
       0,
       "model.layers.0.mlp.gate.weight",
       "model.layers.0.mlp.gate.e_score_correction_bias",
       mlp_0,
       {},
       "",
       sigmoid_top(3, 1e-20, 1, 1, 1, false)},
      {"mimo_v2_flash",
       config("mimo_v2_flash", {{"n_routed_experts", 12},
                                {"num_experts_per_tok", 3},
                                {"moe_intermediate_size", 10},
                                {"n_shared_experts", nullptr},
                                {"routed_scaling_factor", nullptr},
                                {"moe_layer_freq", {0, 1, 1}}}),
       1,
       "model.layers.1.mlp.gate.weight",
       "model.layers.1.mlp.gate.e_score_correction_bias",
       mlp,
       {},
       "",
       sigmoid_top(3, 1e-20, 1)},
      {"nemotron_h",
       config("nemotron_h", {{"n_routed_experts", 12},
                             {"num_experts_per_tok", 3},
                             {"moe_intermediate_size", 10},
                             {"moe_shared_expert_intermediate_size", 13},
                             {"n_shared_experts", 1},
                             {"mlp_hidden_act", "relu2"},
                             {"routed_scaling_factor", 2.5},
                             {"hybrid_override_pattern", "ME*"}}),
       1, "backbone.layers.1.mixer.gate.weight", "backbone.layers.1.mixer.gate.e_score_correction_bias",
       ungated("backbone.layers.1.mixer.experts.#.up_proj.weight", "backbone.layers.1.mixer.experts.#.down_proj.weight",
               10),
       ungated("backbone.layers.1.mixer.shared_experts.up_proj.weight",
               "backbone.layers.1.mixer.shared_experts.down_proj.weight", 13),
       "", sigmoid_top(3, 1e-20, 2.5)},
      {"bailing_hybrid",
       config("bailing_hybrid", {{"num_experts", 16},
                                 {"num_experts_per_token", 4},
                                 {"moe_intermediate_size", 10},
                                 {"num_shared_experts", 2},
                                 {"num_expert_group", 8},
                                 {"mlp_layer_types", {"dense", "sparse", "sparse"}}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.expert_bias", mlp, shared_experts, "",
       sigmoid_top(4, 1e-20, 2.5, 8, 4)},
      {"bailing_moe of the second generation",
       config("bailing_moe", {{"num_experts", 16},
                              {"num_experts_per_tok", 4},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 2},
                              {"n_group", 8},
                              {"topk_group", 4},
                              {"norm_topk_prob", true},
                              {"score_function", "sigmoid"},
                              {"moe_router_enable_expert_bias", true},
                              {"routed_scaling_factor", 2.5},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.expert_bias", mlp, shared_experts, "",
       sigmoid_top(4, 1e-20, 2.5, 8, 4)},
      {"bailing_moe of the first generation",
       config("bailing_moe", {{"num_experts", 8},
                              {"num_experts_per_tok", 3},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 0},
                              {"norm_topk_prob", true}}),
       0,
       "model.layers.0.mlp.gate.weight",
       "",
       mlp_0,
       {},
       "",
       softmax_top(3, true)},
      {"afmoe",
       config("afmoe", {{"num_experts", 9},
                        {"num_experts_per_tok", 3},
                        {"moe_intermediate_size", 10},
                        {"num_shared_experts", 2},
                        {"num_dense_layers", 1},
                        {"route_scale", 2.826}}),
       1, "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.expert_bias", mlp, shared_experts, "",
       sigmoid_top(3, 1e-20, 2.826)},
      {"hy_v3",
       config(
           "hy_v3",
           {{"num_experts", 9}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 10}, {"num_shared_experts", 2}}),
       1, "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.expert_bias", mlp,
       shared("model.layers.1.mlp.shared_mlp.gate_proj.weight", "model.layers.1.mlp.shared_mlp.up_proj.weight",
              "model.layers.1.mlp.shared_mlp.down_proj.weight", 20),
       "", sigmoid_top(3, 1e-20, 2.826)},
      {"kimi_linear",
       config("kimi_linear", {{"num_experts", 9},
                              {"num_experts_per_token", 3},
                              {"moe_intermediate_size", 10},
                              {"num_shared_experts", 2},
                              {"moe_renormalize", true},
                              {"num_expert_group", 1},
                              {"moe_router_activation_func", "sigmoid"},
                              {"first_k_dense_replace", 1}}),
       1, "model.layers.1.block_sparse_moe.gate.weight", "model.layers.1.block_sparse_moe.gate.e_score_correction_bias",
       gate_up_down("model.layers.1.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.1.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.1.block_sparse_moe.experts.#.w2.weight", 10),
       shared("model.layers.1.block_sparse_moe.shared_experts.gate_proj.weight",
              "model.layers.1.block_sparse_moe.shared_experts.up_proj.weight",
              "model.layers.1.block_sparse_moe.shared_experts.down_proj.weight", 20),
       "", sigmoid_top(3, 1e-20, 2.446)},
      {"minimax",
       config("minimax", {{"num_local_experts", 8}, {"num_experts_per_tok", 2}, {"intermediate_size", 10}}),
       0,
       "model.layers.0.block_sparse_moe.gate.weight",
       "",
       gate_up_down("model.layers.0.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w2.weight", 10),
       {},
       "",
       softmax_top(2, true)},
      {"minimax_m2",
       config("minimax_m2", {{"num_local_experts", 8}, {"num_experts_per_tok", 3}, {"intermediate_size", 10}}),
       0,
       "model.layers.0.block_sparse_moe.gate.weight",
       "model.layers.0.block_sparse_moe.e_score_correction_bias",
       gate_up_down("model.layers.0.block_sparse_moe.experts.#.w1.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w3.weight",
                    "model.layers.0.block_sparse_moe.experts.#.w2.weight", 10),
       {},
       "",
       sigmoid_top(3, 0, 1)},
      {"lfm2_moe",
       config("lfm2_moe", {{"num_experts", 8},
                           {"num_experts_per_tok", 3},
                           {"moe_intermediate_size", 10},
                           {"num_dense_layers", 2},
                           {"routed_scaling_factor", 1.5}}),
       2,
       "model.layers.2.feed_forward.gate.weight",
       "model.layers.2.feed_forward.expert_bias",
       gate_up_down("model.layers.2.feed_forward.experts.#.w1.weight",
                    "model.layers.2.feed_forward.experts.#.w3.weight",
                    "model.layers.2.feed_forward.experts.#.w2.weight", 10),
       {},
       "",
       sigmoid_top(3, 1e-6, 1.5)},
      {"ernie4_5_moe with biases of the shared experts",
       config("ernie4_5_moe", {{"moe_num_experts", 8},
                               {"moe_k", 3},
                               {"moe_intermediate_size", 10},
                               {"moe_num_shared_experts", 2},
                               {"use_bias", true},
                               {"moe_layer_start_index", 1}}),
       1, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.moe_statics.e_score_correction_bias", mlp, ernie_shared,
       "",
       [](const Row& logits, const Row& bias) {
         const Row scores = softmax(logits);
         Row choice = scores;
         for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
         return weighted(scores, best(choice, 3), true, 0, 1);
       }},
      {"hunyuan_v1_moe with lists",
       config("hunyuan_v1_moe", {{"num_experts", 8},
                                 {"moe_topk", {3, 3, 3}},
                                 {"intermediate_size", 10},
                                 {"moe_intermediate_size", {10, 10, 10}},
                                 {"num_shared_expert", {1, 1, 1}}}),
       0, "model.layers.0.mlp.gate.wg.weight", "", mlp_0,
       shared("model.layers.0.mlp.shared_mlp.gate_proj.weight", "model.layers.0.mlp.shared_mlp.up_proj.weight",
              "model.layers.0.mlp.shared_mlp.down_proj.weight", 10),
       "", softmax_top(3, true)},
      {"jamba",
       config("jamba", {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"intermediate_size", 10}}),
       1,
       "model.layers.1.feed_forward.router.weight",
       "",
       gate_up_down("model.layers.1.feed_forward.experts.#.gate_proj.weight",
                    "model.layers.1.feed_forward.experts.#.up_proj.weight",
                    "model.layers.1.feed_forward.experts.#.down_proj.weight", 10),
       {},
       "",
       softmax_top(2, false)},
      {"granitemoeshared",
       config("granitemoeshared", {{"num_local_experts", 8},
                                   {"num_experts_per_tok", 3},
                                   {"intermediate_size", 10},
                                   {"shared_intermediate_size", 13},
                                   {"logits_scaling", 6.0}}),
       0, "model.layers.0.block_sparse_moe.router.layer.weight", "",
       gate_up_down("model.layers.0.block_sparse_moe.input_linear.weight", "",
                    "model.layers.0.block_sparse_moe.output_linear.weight", 10, Stored::stacked_halves),
       gate_up_down("model.layers.0.shared_mlp.input_linear.weight", "",
                    "model.layers.0.shared_mlp.output_linear.weight", 13, Stored::halves),
       "",
       [](const Row& logits, const Row&) {
         const std::vector<std::size_t> experts = best(logits, 3);
         Row chosen;
         for (const std::size_t e : experts) chosen.push_back(logits[e]);
         chosen = softmax(chosen);
         std::vector<Choice> choices;
         for (std::size_t i = 0; i < experts.size(); ++i) choices.push_back({experts[i], chosen[i]});
         return choices;
       }},
      {"step3_vl",
       {{"model_type", "step3_vl"},
        {"text_config", config("step3_text", {{"moe_num_experts", 8},
                                              {"moe_top_k", 3},
                                              {"moe_intermediate_size", 10},
                                              {"norm_expert_weight", true},
                                              {"share_expert_dim", 13},
                                              {"moe_layers_enum", "1,2"}})}},
       1,
       "model.layers.1.moe.gate.weight",
       "",
       gate_up_down("model.layers.1.moe.gate_proj.weight", "model.layers.1.moe.up_proj.weight",
                    "model.layers.1.moe.down_proj.weight", 10, Stored::stacked),
       shared("model.layers.1.share_expert.gate_proj.weight", "model.layers.1.share_expert.up_proj.weight",
              "model.layers.1.share_expert.down_proj.weight", 13),
       "",
       softmax_top(3, true)},
      {"qwen3_vl_moe",
       {{"model_type", "qwen3_vl_moe"},
        {"text_config",
         config("qwen3_vl_moe_text", {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 10}})}},
       0,
       "model.language_model.layers.0.mlp.gate.weight",
       "",
       gate_up_down("model.language_model.layers.0.mlp.experts.gate_up_proj", "",
                    "model.language_model.layers.0.mlp.experts.down_proj", 10, Stored::stacked_halves_transposed),
       {},
       "",
       softmax_top(3, true)},
      {"qwen3_5_moe",
       {{"model_type", "qwen3_5_moe"},
        {"text_config", config("qwen3_5_moe_text", {{"num_experts", 8},
                                                    {"num_experts_per_tok", 3},
                                                    {"moe_intermediate_size", 10},
                                                    {"shared_expert_intermediate_size", 13}})}},
       0,
       "model.language_model.layers.0.mlp.gate.weight",
       "",
       gate_up_down("model.language_model.layers.0.mlp.experts.gate_up_proj", "",
                    "model.language_model.layers.0.mlp.experts.down_proj", 10, Stored::stacked_halves),
       shared("model.language_model.layers.0.mlp.shared_expert.gate_proj.weight",
              "model.language_model.layers.0.mlp.shared_expert.up_proj.weight",
              "model.language_model.layers.0.mlp.shared_expert.down_proj.weight", 13),
       "model.language_model.layers.0.mlp.shared_expert_gate.weight",
       softmax_top(3, true)},
  };
}

TEST(FamiliesTest, EveryRowOfTheTableIsRunAgainstAReference) {
  std::set<const ModelFamily*> tested;
  const auto add = [&](const json& whole) {
    const json* text = &whole;
    for (const char* member : {"thinker_config", "text_config"})
      if (text->contains(member)) text = &(*text)[member];
    tested.insert(find_family((*text)["model_type"].get<std::string>()));
  };
  for (const Family& family : families()) add(family.config);
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens")))
    add(json::parse(read_text(entry.path() / "config.json")));
  for (const ModelFamily& family : model_families()) EXPECT_TRUE(tested.contains(&family)) << family.model_types[0];
}

class FamilyLayersTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(FamilyLayersTest);

TEST_P(FamilyLayersTest, ComputeWhatTheFamilysFormulasSay) {
  const Row input = rounded(DType::f32, normal(tokens * hidden, 5));
  std::uint64_t seed = 1;
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    write_random_checkpoint(dir.file("model"), {family.config.dump(), 1, 0, DType::f32, seed++});
    const Checkpoint checkpoint = Checkpoint::open(dir.file("model"));
    ASSERT_EQ(checkpoint.config().first_moe_layer(), family.layer);
    const MoeLayerConfig config = checkpoint.config().layer(family.layer);
    const Block block(dir.file("model"), family);
    Row expected;
    for (std::size_t t = 0; t < tokens; ++t) {
      const Row out = block.forward({input.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                                     input.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden)});
      expected.insert(expected.end(), out.begin(), out.end());
    }

    const MoeLayer layer(device().stream, config.shape, find_layer_weights(checkpoint, config));
    EXPECT_LE(relative_error(run_layer(device(), layer, input).out, expected), 1e-5);
  }
}

}  // namespace
}  // namespace moecl::test
