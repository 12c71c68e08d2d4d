#include "host/model_families.hpp"

namespace moecl {
namespace {

// Sources: the configuration and modeling files of each family in transformers 5 (fields, defaults, formulas), and the
// released checkpoints (tensor names).
constexpr ModelFamily families[] = {
    {
        .model_type = "mixtral",
        .experts = {{"num_local_experts", "num_experts"}},
        .intermediate = {{"intermediate_size"}},
        .renormalise = {{}, true},
        .router_name = "model.layers.{layer}.block_sparse_moe.gate.weight",
        .expert_name = "model.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}.weight",
        .matrices = {"w1", "w3", "w2"},
    },
    {
        .model_type = "qwen2_moe",
        .experts = {{"num_experts", "num_local_experts"}},
        .intermediate = {{"moe_intermediate_size"}},
        .renormalise = {{"norm_topk_prob"}, false},
        .shared_experts = {{}, 1},
        .shared_width = {{"shared_expert_intermediate_size"}},
        .shared_gate = true,
        .sparse_step = {{"decoder_sparse_step"}, 1},
        .sparse_offset = 1,
        .dense_layers_field = "mlp_only_layers",
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
        .shared_name = "model.layers.{layer}.mlp.shared_expert.{matrix}.weight",
        .shared_gate_name = "model.layers.{layer}.mlp.shared_expert_gate.weight",
    },
    {
        .model_type = "qwen3_moe",
        .experts = {{"num_experts", "num_local_experts"}},
        .intermediate = {{"moe_intermediate_size"}},
        .renormalise = {{"norm_topk_prob"}, false},
        .sparse_step = {{"decoder_sparse_step"}, 1},
        .sparse_offset = 1,
        .dense_layers_field = "mlp_only_layers",
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
    },
    {
        .model_type = "olmoe",
        .experts = {{"num_experts", "num_local_experts"}},
        .intermediate = {{"intermediate_size"}},
        .renormalise = {{"norm_topk_prob"}, false},
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
    },
    {
        // norm_topk_prob: DeepSeek's own code then normalises and leaves the scaling out, vLLM does both, transformers
        // only scales.
        .model_type = "deepseek_v2",
        .experts = {{"n_routed_experts", "num_local_experts"}},
        .intermediate = {{"moe_intermediate_size"}},
        .scoring = {{"scoring_func"}, "softmax"},
        .selection = {{"topk_method"}, "greedy"},
        .groups = {{"n_group"}},
        .kept_groups = {{"topk_group"}},
        .renormalise = {{"norm_topk_prob"}, false},
        .renormalise_disputed = true,
        .scaling = {{"routed_scaling_factor"}, 1.0},
        .shared_experts = {{"n_shared_experts"}, 2},
        .shared_width = {{"moe_intermediate_size"}},
        .first_sparse_layer = {{"first_k_dense_replace"}, 0},
        .sparse_step = {{"moe_layer_freq"}, 1},
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .selection_bias_name = "model.layers.{layer}.mlp.gate.e_score_correction_bias",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
        .shared_name = "model.layers.{layer}.mlp.shared_experts.{matrix}.weight",
    },
    {
        .model_type = "deepseek_v3",
        .experts = {{"n_routed_experts", "num_local_experts"}},
        .intermediate = {{"moe_intermediate_size"}},
        .scoring = {{"scoring_func"}, "sigmoid"},
        .selection = {{"topk_method"}, "noaux_tc"},
        .groups = {{"n_group"}, 8},
        .kept_groups = {{"topk_group"}, 4},
        .renormalise = {{"norm_topk_prob"}, true},
        .renormalise_epsilon = 1e-20F,
        .scaling = {{"routed_scaling_factor"}, 2.5},
        .shared_experts = {{"n_shared_experts"}, 1},
        .shared_width = {{"moe_intermediate_size"}},
        .first_sparse_layer = {{"first_k_dense_replace"}, 3},
        .sparse_step = {{"moe_layer_freq"}, 1},
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .selection_bias_name = "model.layers.{layer}.mlp.gate.e_score_correction_bias",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
        .shared_name = "model.layers.{layer}.mlp.shared_experts.{matrix}.weight",
    },
    {
        .model_type = "glm4_moe",
        .experts = {{"n_routed_experts", "num_local_experts"}},
        .intermediate = {{"moe_intermediate_size"}},
        .scoring = {{"scoring_func"}, "sigmoid"},
        .selection = {{"topk_method"}, "noaux_tc"},
        .groups = {{"n_group"}, 1},
        .kept_groups = {{"topk_group"}, 1},
        .renormalise = {{"norm_topk_prob"}, true},
        .renormalise_epsilon = 1e-20F,
        .scaling = {{"routed_scaling_factor"}, 1.0},
        .shared_experts = {{"n_shared_experts"}, 1},
        .shared_width = {{"moe_intermediate_size"}},
        .first_sparse_layer = {{"first_k_dense_replace"}, 1},
        .router_name = "model.layers.{layer}.mlp.gate.weight",
        .selection_bias_name = "model.layers.{layer}.mlp.gate.e_score_correction_bias",
        .expert_name = "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
        .shared_name = "model.layers.{layer}.mlp.shared_experts.{matrix}.weight",
    },
};

// Source: deepseek-ai/DeepSeek-V2 and DeepSeek-V3, modeling_deepseek.py, class MoEGate
constexpr SelectionMethod selection_methods[] = {
    {"greedy", false, GroupScore::max, false},
    {"group_limited_greedy", true, GroupScore::max, false},
    {"noaux_tc", true, GroupScore::sum_of_top_2, true},
};

}  // namespace

const ModelFamily* find_family(std::string_view model_type) {
  for (const ModelFamily& family : families)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

std::vector<const char*> family_names() {
  std::vector<const char*> names;
  for (const ModelFamily& family : families) names.push_back(family.model_type);
  return names;
}

const SelectionMethod* find_selection_method(std::string_view name) {
  for (const SelectionMethod& method : selection_methods)
    if (name == method.name) return &method;
  return nullptr;
}

}  // namespace moecl
