#pragma once
// Families that store all experts of a layer in one tensor.
#include "host/checkpoint/families/names.hpp"

namespace moecl::families {

// The family's logits_scaling divides the language model's logits, not the router's.
inline constexpr ModelFamily granitemoe{
    .model_types = {"granitemoe", "granitemoeshared"},
    .intermediate = {{"intermediate_size"}},
    .order = ScoreOrder::after_top_k,
    .shared_experts = {{}, 1},
    .shared_width = {{"shared_intermediate_size"}, 0},
    .router_name = "block_sparse_moe.router.layer.weight",
    .expert_names = {{{"block_sparse_moe.{matrix}.weight", {"input_linear", "input_linear", "output_linear"}},
                      {"block_sparse_moe.experts.{matrix}", stacked.matrices}}},
    .shared_names = {"shared_mlp.{matrix}.weight", {"input_linear", "input_linear", "output_linear"}},
};

inline constexpr ModelFamily granitemoehybrid = [] {
  ModelFamily family = granitemoe;
  family.model_types = {"granitemoehybrid"};
  family.shared_width.fallback = 1024;
  return family;
}();

inline constexpr ModelFamily llama4{
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
inline constexpr ModelFamily gpt_oss{
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

// Source: also databricks/dbrx-instruct, config.json and modeling_dbrx.py (gate w1, up v1, down w2, the norm of
// weights)
inline constexpr ModelFamily dbrx{
    .model_types = {"dbrx"},
    .experts = {{"ffn_config.moe_num_experts"}},
    .top_k = {{"ffn_config.moe_top_k"}},
    .intermediate = {{"ffn_config.ffn_hidden_size"}},
    .weight_norm = {{"ffn_config.moe_normalize_expert_weights"}, 1.0},
    .activation_name = {{"ffn_config.ffn_act_fn.name"}, "silu"},
    .prefix = "transformer.blocks.{layer}.",
    .router_name = "ffn.router.layer.weight",
    .expert_names = {{{.name = "ffn.experts.mlp.{matrix}", .matrices = {"w1", "v1", "w2"}, .flat = true}}},
};

// Source: vLLM's step3_text.py and Step3TextConfig
inline constexpr ModelFamily step3{
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

}  // namespace moecl::families
