#include "host/model_families.hpp"

namespace moecl {
namespace {

// Sources, unless a row names others: the configuration and modeling files of each family in transformers 5 (fields,
// defaults, formulas), the left sides of its conversion_mapping.py and the released checkpoints (tensor names).

constexpr NetworkNames one_by_one{"mlp.experts.{expert}.{matrix}.weight"};
/// As transformers 5 holds them in memory.
constexpr NetworkNames stacked{"mlp.experts.{matrix}", {"gate_up_proj", "gate_up_proj", "down_proj"}};
constexpr std::array<const char*, 3> w1_w3_w2{"w1", "w3", "w2"};

constexpr ModelFamily mixtral{
    .model_types = {"mixtral"},
    .intermediate = {{"intermediate_size"}},
    .renormalise = {{}, true},
    .router_name = "block_sparse_moe.gate.weight",
    .selection_bias_name = "block_sparse_moe.e_score_correction_bias",
    .expert_names = {{{"block_sparse_moe.experts.{expert}.{matrix}.weight", w1_w3_w2}, stacked}},
};

// One rule for all: MiniMax-M2 was released as model_type "minimax" too, told apart by its fields.
constexpr ModelFamily minimax = [] {
  ModelFamily family = mixtral;
  family.model_types = {"minimax", "minimax_text_01", "minimax_m1"};
  family.scoring = {{"scoring_func"}, "softmax"};
  family.selection = {{}, "noaux_tc"};
  family.groups = family.kept_groups = {{}, 1};
  family.selection_bias = {{"use_routing_bias"}, false};
  return family;
}();

constexpr ModelFamily minimax_m2 = [] {
  ModelFamily family = minimax;
  family.model_types = {"minimax_m2"};
  family.scoring.fallback = "sigmoid";
  family.selection_bias.fallback = true;
  return family;
}();

constexpr ModelFamily phimoe = [] {
  ModelFamily family = mixtral;
  family.model_types = {"phimoe"};
  family.scoring = {{}, "sparse_mixer"};
  family.mixer_jitter = {{"router_jitter_noise"}, 0.01};
  family.renormalise = {{}, false};
  return family;
}();

constexpr ModelFamily qwen3_moe{
    .model_types = {"qwen3_moe"},
    .renormalise = {{"norm_topk_prob"}, false},
    .sparse_step = {{"decoder_sparse_step"}, 1},
    .sparse_phase = {{}, -1},
    .dense_layers_field = "mlp_only_layers",
    .expert_names = {one_by_one, stacked},
};

constexpr ModelFamily qwen3_omni_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen3_omni_moe_text"};
  family.renormalise.fallback = true;
  return family;
}();

constexpr ModelFamily qwen2_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen2_moe"};
  family.shared_experts = {{}, 1};
  family.shared_width = {{"shared_expert_intermediate_size"}};
  family.shared_names = {"mlp.shared_expert.{matrix}.weight"};
  family.shared_gate_name = "mlp.shared_expert_gate.weight";
  return family;
}();

constexpr ModelFamily qwen3_next = [] {
  ModelFamily family = qwen2_moe;
  family.model_types = {"qwen3_next"};
  family.renormalise.fallback = true;
  return family;
}();

constexpr ModelFamily qwen3_5_moe = [] {
  ModelFamily family = qwen2_moe;
  family.model_types = {"qwen3_5_moe_text"};
  family.renormalise = {{}, true};
  family.sparse_step = {{}, 1};
  family.dense_layers_field = nullptr;
  family.expert_names = {stacked, one_by_one};
  return family;
}();

constexpr ModelFamily qwen3_vl_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen3_vl_moe_text"};
  family.renormalise = {{}, true};
  family.expert_names = {{{stacked.name, stacked.matrices, true}, one_by_one}};
  return family;
}();

constexpr ModelFamily olmoe{
    .model_types = {"olmoe", "flex_olmo"},
    .intermediate = {{"intermediate_size"}},
    .renormalise = {{"norm_topk_prob"}, false},
    .expert_names = {one_by_one, stacked},
};

// Its shared experts' fields and tensors are those of all DeepSeek models. norm_topk_prob: as in vLLM the weights are
// normalised, then scaled (DeepSeek's own code leaves the scaling out then, transformers does not normalise; no
// released model sets it).
constexpr ModelFamily deepseek_v2{
    .model_types = {"deepseek_v2", "deepseek"},
    .experts = {{"n_routed_experts", "num_local_experts", "num_experts"}},
    .scoring = {{"scoring_func"}, "softmax"},
    .selection = {{"topk_method"}, "greedy"},
    .groups = {{"n_group"}},
    .kept_groups = {{"topk_group"}},
    .renormalise = {{"norm_topk_prob"}, false},
    .scaling = {{"routed_scaling_factor"}, 1.0},
    .shared_experts = {{"n_shared_experts"}, 2},
    .shared_width = {{"moe_intermediate_size"}},
    .first_sparse_layer = {{"first_k_dense_replace"}, 0},
    .sparse_step = {{"moe_layer_freq"}, 1},
    .expert_names = {one_by_one, stacked},
    .shared_names = {"mlp.shared_experts.{matrix}.weight"},
};

constexpr ModelFamily deepseek_v3 = [] {
  ModelFamily family = deepseek_v2;
  family.model_types = {"deepseek_v3", "deepseek_v32", "kimi_k2"};
  family.scoring.fallback = "sigmoid";
  family.selection.fallback = "noaux_tc";
  family.groups.fallback = 8;
  family.kept_groups.fallback = 4;
  family.renormalise.fallback = true;
  family.renormalise_epsilon = 1e-20F;
  family.scaling.fallback = 2.5;
  family.shared_experts.fallback = 1;
  family.first_sparse_layer.fallback = 3;
  family.sparse_layers_fields = {"mlp_layer_types"};
  return family;
}();

constexpr ModelFamily glm4_moe = [] {
  ModelFamily family = deepseek_v3;
  family.model_types = {"glm4_moe", "glm4v_moe_text"};
  family.groups.fallback = family.kept_groups.fallback = 1;
  family.scaling.fallback = 1.0;
  family.first_sparse_layer.fallback = 1;
  family.sparse_step = {{}, 1};
  return family;
}();

constexpr ModelFamily glm4_moe_lite = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"glm4_moe_lite"};
  family.scaling.fallback = 1.8;
  return family;
}();

constexpr ModelFamily glm_moe_dsa = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"glm_moe_dsa"};
  family.scaling.fallback = 2.5;
  family.first_sparse_layer.fallback = 3;
  return family;
}();

constexpr ModelFamily solar_open = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"solar_open"};
  family.first_sparse_layer = {{}, 0};
  return family;
}();

constexpr ModelFamily dots1 = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"dots1"};
  family.scoring = {{}, "sigmoid"};
  family.selection = {{}, "noaux_tc"};
  family.renormalise.fallback = false;
  family.shared_experts.fallback = 0;
  family.first_sparse_layer.fallback = 0;
  return family;
}();

// Source: also XiaomiMiMo/MiMo-V2-Flash, config.json (moe_layer_freq, no shared experts)
constexpr ModelFamily mimo_v2_flash = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"mimo_v2_flash"};
  family.shared_experts.fallback = 0;
  family.first_sparse_layer = {{}, 0};
  family.sparse_step = {{"moe_layer_freq"}, 1};
  return family;
}();

// Source: also vLLM's nemotron_h.py (the width of several shared experts). Newer models put products to and from a
// narrower width around the experts.
constexpr ModelFamily nemotron_h = [] {
  constexpr std::array<const char*, 3> ungated{nullptr, "up_proj", "down_proj"};
  ModelFamily family = glm4_moe;
  family.model_types = {"nemotron_h"};
  family.scoring = {{}, "sigmoid"};
  family.selection = {{}, "noaux_tc"};
  family.activation_name = {{"mlp_hidden_act"}, "relu2"};
  family.shared_width = {{"moe_shared_expert_intermediate_size"}};
  family.first_sparse_layer = {{}, 0};
  family.sparse_layers_fields = {"layers_block_type", "hybrid_override_pattern"};
  family.sparse_layer_types = {"moe", "E"};
  family.unknown_field = "moe_latent_size";
  family.prefix = "backbone.layers.{layer}.mixer.";
  family.router_name = "gate.weight";
  family.selection_bias_name = "gate.e_score_correction_bias";
  family.expert_names = {{{"experts.{expert}.{matrix}.weight", ungated}}};
  family.shared_names = {"shared_experts.{matrix}.weight", ungated};
  return family;
}();

constexpr ModelFamily exaone_moe = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"exaone_moe"};
  family.experts = {{"num_experts"}};
  family.scaling.fallback = 2.5;
  family.shared_experts = {{"num_shared_experts"}, 1};
  family.selection_bias_name = "mlp.e_score_correction_bias";
  return family;
}();

// Source: inclusionAI/Ling-lite and Ling-mini-2.0 (config.json), vLLM's bailing_moe.py; the generations differ by their
// fields.
constexpr ModelFamily bailing_moe = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"bailing_moe", "bailing_moe_v2", "bailing_moe_linear"};
  family.experts = {{"num_experts"}};
  family.scoring = {{"score_function"}, "softmax"};
  family.selection = {{}, "noaux_tc"};
  family.selection_bias = {{"moe_router_enable_expert_bias"}, false};
  family.shared_experts = {{"num_shared_experts"}, 0};
  family.shared_bias = {{"use_bias"}, false};
  family.first_sparse_layer.fallback = 0;
  family.selection_bias_name = "mlp.gate.expert_bias";
  return family;
}();

constexpr ModelFamily bailing_hybrid = [] {
  ModelFamily family = bailing_moe;
  family.model_types = {"bailing_hybrid"};
  family.experts = {{"num_experts", "num_local_experts"}};
  family.top_k = {{"num_experts_per_token", "num_experts_per_tok"}};
  family.scoring = {{"score_function"}, "sigmoid"};
  family.groups = {{"num_expert_group", "n_group"}, 8};
  family.kept_groups = {{"topk_group"}, 4};
  family.selection_bias.fallback = true;
  family.renormalise = {{"moe_renormalize", "norm_topk_prob"}, true};
  family.scaling.fallback = 2.5;
  family.shared_experts = {{"num_shared_experts", "n_shared_experts"}, 1};
  family.shared_bias = {{}, false};
  family.first_sparse_layer.fallback = 2;
  return family;
}();

// Source: also vLLM's kimi_linear.py
constexpr ModelFamily kimi_linear = [] {
  ModelFamily family = bailing_hybrid;
  family.model_types = {"kimi_linear"};
  family.scoring = {{"moe_router_activation_func"}, "sigmoid"};
  family.groups.fallback = family.kept_groups.fallback = 1;
  family.selection_bias = {{}, true};
  family.scaling.fallback = 2.446;
  family.first_sparse_layer.fallback = 1;
  family.sparse_step = {{"moe_layer_freq"}, 1};
  family.router_name = "block_sparse_moe.gate.weight";
  family.selection_bias_name = "block_sparse_moe.gate.e_score_correction_bias";
  family.expert_names = {{{"block_sparse_moe.experts.{expert}.{matrix}.weight", w1_w3_w2}, one_by_one}};
  family.shared_names = {"block_sparse_moe.shared_experts.{matrix}.weight"};
  return family;
}();

constexpr ModelFamily hy_v3 = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"hy_v3"};
  family.experts = {{"num_experts", "num_local_experts"}};
  family.groups = family.kept_groups = {{}, 1};
  family.renormalise = {{}, true};
  family.scaling = {{"router_scaling_factor"}, 2.826};
  family.shared_experts = {{"num_shared_experts"}, 1};
  family.shared_bias = {{"mlp_bias"}, false};
  family.router_name = "mlp.router.gate.weight";
  family.selection_bias_name = "mlp.expert_bias";
  family.shared_names = {"mlp.shared_mlp.{matrix}.weight"};
  return family;
}();

// Source: also arcee-ai/Trinity-Mini, config.json (score_func, route_norm, n_group)
constexpr ModelFamily afmoe = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"afmoe"};
  family.experts = {{"num_experts", "num_local_experts"}};
  family.scoring = {{"score_func"}, "sigmoid"};
  family.selection = {{}, "noaux_tc"};
  family.renormalise = {{"route_norm"}, true};
  family.scaling = {{"route_scale"}, 1.0};
  family.shared_experts = {{"num_shared_experts"}, 2};
  family.first_sparse_layer = {{"num_dense_layers"}, 1};
  family.router_name = "mlp.router.gate.weight";
  family.selection_bias_name = "mlp.expert_bias";
  return family;
}();

constexpr ModelFamily lfm2_moe{
    .model_types = {"lfm2_moe"},
    .scoring = {{}, "sigmoid"},
    .selection = {{}, "noaux_tc"},
    .groups = {{}, 1},
    .kept_groups = {{}, 1},
    .selection_bias = {{"use_expert_bias"}, true},
    .renormalise = {{"norm_topk_prob"}, true},
    .renormalise_epsilon = 1e-6F,
    .scaling = {{"routed_scaling_factor"}, 1.0},
    .first_sparse_layer = {{"num_dense_layers"}, 2},
    .router_name = "feed_forward.gate.weight",
    .selection_bias_name = "feed_forward.expert_bias",
    .expert_names = {{{"feed_forward.experts.{expert}.{matrix}.weight", w1_w3_w2},
                      {"feed_forward.experts.{matrix}", stacked.matrices}}},
};

constexpr ModelFamily ernie4_5_moe{
    .model_types = {"ernie4_5_moe"},
    .experts = {{"moe_num_experts", "num_experts"}},
    .top_k = {{"moe_k", "num_experts_per_tok"}},
    .selection = {{}, "noaux_tc"},
    .groups = {{}, 1},
    .kept_groups = {{}, 1},
    .renormalise = {{}, true},
    .renormalise_minimum = {{"moe_norm_min"}, 1e-12},
    .shared_experts = {{"moe_num_shared_experts"}, 2},
    .shared_width = {{"moe_intermediate_size"}},
    .shared_bias = {{"use_bias"}, false},
    .first_sparse_layer = {{"moe_layer_start_index"}, 1},
    .last_sparse_layer = {{"moe_layer_end_index"}, -1},
    .sparse_step = {{"moe_layer_interval"}, 1},
    .sparse_phase = {{}, -1},
    .selection_bias_name = "mlp.moe_statics.e_score_correction_bias",
    .expert_names = {one_by_one, stacked},
    .shared_names = {"mlp.shared_experts.{matrix}.weight"},
};

// Source: also tencent/Hunyuan-A13B-Instruct, config.json (lists, num_shared_expert)
constexpr ModelFamily hunyuan_v1_moe{
    .model_types = {"hunyuan_v1_moe", "hunyuan"},
    .top_k = {{"moe_topk", "num_experts_per_tok"}},
    .intermediate = {{"intermediate_size", "moe_intermediate_size"}},
    .renormalise = {{}, true},
    .shared_experts = {{"num_shared_expert"}, 1},
    .shared_width = {{"intermediate_size"}},
    .shared_bias = {{"mlp_bias"}, false},
    .router_name = "mlp.gate.wg.weight",
    .expert_names = {one_by_one, stacked},
    .shared_names = {"mlp.shared_mlp.{matrix}.weight"},
};

constexpr ModelFamily jamba{
    .model_types = {"jamba"},
    .intermediate = {{"intermediate_size"}},
    .sparse_step = {{"expert_layer_period"}, 2},
    .sparse_phase = {{"expert_layer_offset"}, 1},
    .router_name = "feed_forward.router.weight",
    .expert_names = {{{"feed_forward.experts.{expert}.{matrix}.weight"},
                      {"feed_forward.experts.{matrix}", stacked.matrices}}},
};

// The family's logits_scaling divides the language model's logits, not the router's.
constexpr ModelFamily granitemoe{
    .model_types = {"granitemoe", "granitemoeshared", "granitemoehybrid"},
    .intermediate = {{"intermediate_size"}},
    .order = ScoreOrder::after_top_k,
    .shared_experts = {{}, 1},
    .shared_width = {{"shared_intermediate_size"}, 0},
    .router_name = "block_sparse_moe.router.layer.weight",
    .expert_names = {{{"block_sparse_moe.{matrix}.weight", {"input_linear", "input_linear", "output_linear"}},
                      {"block_sparse_moe.experts.{matrix}", stacked.matrices}}},
    .shared_names = {"shared_mlp.{matrix}.weight", {"input_linear", "input_linear", "output_linear"}},
};

constexpr ModelFamily llama4{
    .model_types = {"llama4_text"},
    .intermediate = {{"intermediate_size"}},
    .scoring = {{}, "sigmoid"},
    .order = ScoreOrder::after_top_k,
    .weight_on_input = true,
    .shared_experts = {{}, 1},
    .shared_width = {{"intermediate_size"}},
    .sparse_step = {{"interleave_moe_layer_step"}, 1},
    .sparse_phase = {{}, -1},
    .sparse_layers_fields = {"moe_layers"},
    .router_name = "feed_forward.router.weight",
    .expert_names = {{{"feed_forward.experts.{matrix}", stacked.matrices, true},
                      {"feed_forward.experts.{expert}.{matrix}.weight"}}},
    .shared_names = {"feed_forward.shared_expert.{matrix}.weight"},
};

// Source: also openai/gpt-oss-20b, config.json and gpt_oss/torch/model.py (biases, alternating rows, swiglu)
constexpr ModelFamily gpt_oss{
    .model_types = {"gpt_oss"},
    .top_k = {{"num_experts_per_tok", "experts_per_token"}},
    .intermediate = {{"intermediate_size"}},
    .order = ScoreOrder::after_top_k,
    .activation = ActivationFunction::swigluoai,
    .activation_alpha = {{"swiglu_alpha"}, 1.702},
    .activation_limit = {{"swiglu_limit"}, 7.0},
    .router_name = "mlp.router.weight",
    .router_bias_name = "mlp.router.bias",
    .expert_names = {{{stacked.name, stacked.matrices, true, true, "mlp.experts.{matrix}_bias"}}},
};

// Source: vLLM's step3_text.py and Step3TextConfig
constexpr ModelFamily step3{
    .model_types = {"step3_text"},
    .experts = {{"moe_num_experts"}},
    .top_k = {{"moe_top_k"}},
    .renormalise = {{"norm_expert_weight"}, false},
    .shared_experts = {{}, 1},
    .shared_width = {{"share_expert_dim"}},
    .first_sparse_layer = {{}, 1},
    .sparse_layers_fields = {"moe_layers_enum"},
    .router_name = "moe.gate.weight",
    .expert_names = {{{"moe.{matrix}.weight"}}},
    .shared_names = {"share_expert.{matrix}.weight"},
};

constexpr ModelFamily families[] = {
    mixtral,    qwen2_moe,      qwen3_moe,      qwen3_next,  qwen3_vl_moe, qwen3_omni_moe, qwen3_5_moe,
    olmoe,      deepseek_v2,    deepseek_v3,    glm4_moe,    dots1,        glm4_moe_lite,  glm_moe_dsa,
    solar_open, mimo_v2_flash,  nemotron_h,     exaone_moe,  phimoe,       granitemoe,     llama4,
    gpt_oss,    hunyuan_v1_moe, ernie4_5_moe,   minimax,     minimax_m2,   lfm2_moe,       jamba,
    afmoe,      bailing_moe,    bailing_hybrid, kimi_linear, hy_v3,        step3,
};

// Source: each model's released model.safetensors.index.json; vLLM's step3_vl.py
constexpr WrapperFamily wrappers[] = {
    {"llama4", "text_config", "language_model.model."},
    {"qwen3_vl_moe", "text_config", "model.language_model."},
    {"qwen3_omni_moe", "thinker_config.text_config", "thinker.model."},
    {"qwen3_5_moe", "text_config", "model.language_model."},
    {"glm4v_moe", "text_config", "model.language_model."},
    {"deepseek_vl_v2", "language_config", "language.model."},
    {"internvl_chat", "llm_config", "language_model.model."},
    {"kimi_k25", "text_config", "language_model.model."},
    {"kimi_vl", "text_config", "language_model.model."},
    {"step3_vl", "text_config", "model."},
};

// Source: deepseek-ai/DeepSeek-V2 and DeepSeek-V3, modeling_deepseek.py, class MoEGate
constexpr SelectionMethod selection_methods[] = {
    {"greedy", false, GroupScore::max, false},
    {"group_limited_greedy", true, GroupScore::max, false},
    {"noaux_tc", true, GroupScore::sum_of_top_2, true},
};

}  // namespace

bool is_stacked(const NetworkNames& names) {
  return std::string_view(names.name).find("{expert}") == std::string_view::npos;
}
bool has_stacked_experts(const ModelFamily& family) {
  for (const NetworkNames& form : family.expert_names)
    if (form.name != nullptr && !is_stacked(form)) return false;
  return true;
}

const ModelFamily* find_family(std::string_view model_type) {
  for (const ModelFamily& family : families)
    for (const char* name : family.model_types)
      if (name != nullptr && model_type == name) return &family;
  return nullptr;
}

std::span<const ModelFamily> model_families() { return families; }
std::span<const WrapperFamily> wrapper_families() { return wrappers; }

const WrapperFamily* find_wrapper(std::string_view model_type) {
  for (const WrapperFamily& wrapper : wrappers)
    if (model_type == wrapper.model_type) return &wrapper;
  return nullptr;
}

std::vector<const char*> model_type_names() {
  std::vector<const char*> names;
  for (const ModelFamily& family : families)
    for (const char* name : family.model_types)
      if (name != nullptr) names.push_back(name);
  for (const WrapperFamily& wrapper : wrappers) names.push_back(wrapper.model_type);
  return names;
}

const SelectionMethod* find_selection_method(std::string_view name) {
  for (const SelectionMethod& method : selection_methods)
    if (name == method.name) return &method;
  return nullptr;
}

}  // namespace moecl
