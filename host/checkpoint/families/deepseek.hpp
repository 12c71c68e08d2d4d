#pragma once
// Families with a tensor for each matrix of each expert, shared experts, and a router with groups, as in DeepSeek.
#include "host/checkpoint/families/names.hpp"

namespace moecl::families {

// The shared experts' fields and tensors are the same in all DeepSeek models. With norm_topk_prob the weights are
// normalised and then scaled, as in vLLM. (DeepSeek's own code then does not scale, transformers does not normalise,
// and no released model sets it.)
inline constexpr ModelFamily deepseek_v2{
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
    .shared_bias = {{"mlp_bias"}, false},
    .first_sparse_layer = {{"first_k_dense_replace"}, 0},
    .sparse_step = {{"moe_layer_freq"}, 1},
    .expert_names = {one_by_one, stacked},
    .shared_names = {"mlp.shared_experts.{matrix}.weight"},
};

inline constexpr ModelFamily deepseek_v3 = [] {
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
  family.shared_bias = {{}, false};
  family.first_sparse_layer.fallback = 3;
  family.sparse_layers_fields = {"mlp_layer_types"};
  return family;
}();

inline constexpr ModelFamily glm4_moe = [] {
  ModelFamily family = deepseek_v3;
  family.model_types = {"glm4_moe", "glm4v_moe_text"};
  family.groups.fallback = family.kept_groups.fallback = 1;
  family.scaling.fallback = 1.0;
  family.first_sparse_layer.fallback = 1;
  family.sparse_step = {{}, 1};
  return family;
}();

inline constexpr ModelFamily glm4_moe_lite = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"glm4_moe_lite"};
  family.scaling.fallback = 1.8;
  return family;
}();

inline constexpr ModelFamily glm_moe_dsa = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"glm_moe_dsa"};
  family.scaling.fallback = 2.5;
  family.first_sparse_layer.fallback = 3;
  return family;
}();

inline constexpr ModelFamily solar_open = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"solar_open"};
  family.first_sparse_layer = {{}, 0};
  return family;
}();

inline constexpr ModelFamily dots1 = [] {
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
inline constexpr ModelFamily mimo_v2_flash = [] {
  ModelFamily family = glm4_moe;
  family.model_types = {"mimo_v2_flash"};
  family.shared_experts.fallback = 0;
  family.first_sparse_layer = {{}, 0};
  family.sparse_step = {{"moe_layer_freq"}, 1};
  return family;
}();

// Source: also vLLM's nemotron_h.py (the width of several shared experts). Newer models project to a narrower width
// before the experts and back after them; `unknown_field` refuses these.
inline constexpr ModelFamily nemotron_h = [] {
  constexpr std::array<const char*, 3> ungated{nullptr, "up_proj", "down_proj"};
  ModelFamily family = glm4_moe;
  family.model_types = {"nemotron_h"};
  family.scoring = {{}, "sigmoid"};
  family.selection = {{}, "noaux_tc"};
  family.activation_name = {{"mlp_hidden_act"}, "relu2"};
  family.shared_width = {{"moe_shared_expert_intermediate_size"}};
  family.shared_bias = {{"mlp_bias"}, false};
  family.first_sparse_layer = {{}, 0};
  family.sparse_layers_fields = {"layers_block_type", "hybrid_override_pattern"};
  family.sparse_layer_types = {"moe", "E"};
  family.layers_by_type = true;
  family.unknown_field = "moe_latent_size";
  family.prefix = "backbone.layers.{layer}.mixer.";
  family.router_name = "gate.weight";
  family.selection_bias_name = "gate.e_score_correction_bias";
  family.expert_names = {{{"experts.{expert}.{matrix}.weight", ungated}}};
  family.shared_names = {"shared_experts.{matrix}.weight", ungated};
  return family;
}();

inline constexpr ModelFamily exaone_moe = [] {
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
inline constexpr ModelFamily bailing_moe = [] {
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

inline constexpr ModelFamily bailing_hybrid = [] {
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
inline constexpr ModelFamily kimi_linear = [] {
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

inline constexpr ModelFamily hy_v3 = [] {
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
inline constexpr ModelFamily afmoe = [] {
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

}  // namespace moecl::families
