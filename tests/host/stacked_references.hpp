#pragma once
// Families that store all experts of a layer in one tensor.
#include "tests/host/family_reference.hpp"

namespace moecl::test {

/// Granite: a softmax over the chosen experts alone.
inline Route best_then_softmax(std::size_t k) {
  return [=](const Row& logits, const Row&) {
    const std::vector<std::size_t> experts = best(logits, k);
    Row chosen;
    for (const std::size_t e : experts) chosen.push_back(logits[e]);
    chosen = softmax(chosen);
    std::vector<Choice> choices;
    for (std::size_t i = 0; i < experts.size(); ++i) choices.push_back({experts[i], chosen[i]});
    return choices;
  };
}

inline std::vector<Family> stacked_references() {
  return {
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
       "", best_then_softmax(3)},
      {"granitemoehybrid with shared experts of the width that transformers gives them",
       config("granitemoehybrid", {{"num_local_experts", 8}, {"num_experts_per_tok", 3}, {"intermediate_size", 10}}), 0,
       "model.layers.0.block_sparse_moe.router.layer.weight", "",
       gate_up_down("model.layers.0.block_sparse_moe.input_linear.weight", "",
                    "model.layers.0.block_sparse_moe.output_linear.weight", 10, Stored::stacked_halves),
       gate_up_down("model.layers.0.shared_mlp.input_linear.weight", "",
                    "model.layers.0.shared_mlp.output_linear.weight", 1024, Stored::halves),
       "", best_then_softmax(3)},
      {"dbrx",
       {{"model_type", "dbrx"},
        {"d_model", reference_hidden},
        {"n_layers", 3},
        {"ffn_config",
         {{"ffn_act_fn", {{"name", "silu"}}}, {"ffn_hidden_size", 10}, {"moe_num_experts", 8}, {"moe_top_k", 3}}}},
       0,
       "transformer.blocks.0.ffn.router.layer.weight",
       "",
       gate_up_down("transformer.blocks.0.ffn.experts.mlp.w1", "transformer.blocks.0.ffn.experts.mlp.v1",
                    "transformer.blocks.0.ffn.experts.mlp.w2", 10, Stored::flat),
       {},
       "",
       softmax_top(3, true)},
      {"dbrx without a norm of weights, as wide as its tokens",
       {{"model_type", "dbrx"},
        {"d_model", reference_hidden},
        {"n_layers", 3},
        {"ffn_config",
         {{"ffn_hidden_size", reference_hidden},
          {"moe_num_experts", 8},
          {"moe_top_k", 3},
          {"moe_normalize_expert_weights", nullptr}}}},
       0,
       "transformer.blocks.0.ffn.router.layer.weight",
       "",
       gate_up_down("transformer.blocks.0.ffn.experts.mlp.w1", "transformer.blocks.0.ffn.experts.mlp.v1",
                    "transformer.blocks.0.ffn.experts.mlp.w2", reference_hidden, Stored::flat),
       {},
       "",
       softmax_top(3, false)},
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
       gate_up_down("model.layers.1.share_expert.gate_proj.weight", "model.layers.1.share_expert.up_proj.weight",
                    "model.layers.1.share_expert.down_proj.weight", 13),
       "",
       softmax_top(3, true)},
  };
}

}  // namespace moecl::test
