#pragma once
// Families with a tensor for each matrix of each expert: gate_proj, up_proj, down_proj.
#include "host/checkpoint/families/names.hpp"

namespace moecl::families {

inline constexpr ModelFamily qwen3_moe{
    .model_types = {"qwen3_moe"},
    .renormalise = {{"norm_topk_prob"}, false},
    .sparse_step = {{"decoder_sparse_step"}, 1},
    .sparse_phase = {{}, -1},
    .dense_layers_field = "mlp_only_layers",
    .expert_names = {one_by_one, stacked},
};

inline constexpr ModelFamily qwen3_omni_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen3_omni_moe_text"};
  family.renormalise.fallback = true;
  return family;
}();

inline constexpr ModelFamily qwen2_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen2_moe"};
  family.shared_experts = {{}, 1};
  family.shared_width = {{"shared_expert_intermediate_size"}};
  family.shared_names = {"mlp.shared_expert.{matrix}.weight"};
  family.shared_gate_name = "mlp.shared_expert_gate.weight";
  return family;
}();

inline constexpr ModelFamily qwen3_next = [] {
  ModelFamily family = qwen2_moe;
  family.model_types = {"qwen3_next"};
  family.renormalise.fallback = true;
  return family;
}();

inline constexpr ModelFamily qwen3_5_moe = [] {
  ModelFamily family = qwen2_moe;
  family.model_types = {"qwen3_5_moe_text"};
  family.renormalise = {{}, true};
  family.sparse_step = {{}, 1};
  family.dense_layers_field = nullptr;
  family.expert_names = {stacked, one_by_one};
  return family;
}();

inline constexpr ModelFamily qwen3_vl_moe = [] {
  ModelFamily family = qwen3_moe;
  family.model_types = {"qwen3_vl_moe_text"};
  family.renormalise = {{}, true};
  family.expert_names = {{{stacked.name, stacked.matrices, true}, stacked, one_by_one}};
  return family;
}();

inline constexpr ModelFamily olmoe{
    .model_types = {"olmoe", "flex_olmo"},
    .intermediate = {{"intermediate_size"}},
    .renormalise = {{"norm_topk_prob"}, false},
    .expert_names = {one_by_one, stacked},
};

inline constexpr ModelFamily ernie4_5_moe{
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
    .selection_bias_row = true,
    .expert_names = {one_by_one, stacked},
    .shared_names = {"mlp.shared_experts.{matrix}.weight"},
};

// Source: also tencent/Hunyuan-A13B-Instruct, config.json (lists, num_shared_expert)
inline constexpr ModelFamily hunyuan_v1_moe{
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

inline constexpr ModelFamily jamba{
    .model_types = {"jamba"},
    .intermediate = {{"intermediate_size"}},
    .sparse_step = {{"expert_layer_period"}, 2},
    .sparse_phase = {{"expert_layer_offset"}, 1},
    .router_name = "feed_forward.router.weight",
    .expert_names = {{{"feed_forward.experts.{expert}.{matrix}.weight"},
                      {"feed_forward.experts.{matrix}", stacked.matrices}}},
};

}  // namespace moecl::families
