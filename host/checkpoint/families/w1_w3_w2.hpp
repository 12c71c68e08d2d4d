#pragma once
// Families with a tensor for each matrix of each expert: w1 is the gate, w3 up, w2 down.
#include "host/checkpoint/families/names.hpp"

namespace moecl::families {

inline constexpr ModelFamily mixtral{
    .model_types = {"mixtral"},
    .intermediate = {{"intermediate_size"}},
    .renormalise = {{}, true},
    .router_name = "block_sparse_moe.gate.weight",
    .selection_bias_name = "block_sparse_moe.e_score_correction_bias",
    .expert_names = {{{"block_sparse_moe.experts.{expert}.{matrix}.weight", w1_w3_w2}, stacked}},
};

// One rule for all of them: MiniMax-M2 was also released as model_type "minimax". Its fields tell it apart.
inline constexpr ModelFamily minimax = [] {
  ModelFamily family = mixtral;
  family.model_types = {"minimax", "minimax_text_01", "minimax_m1"};
  family.scoring = {{"scoring_func"}, "softmax"};
  family.selection = {{}, "noaux_tc"};
  family.groups = family.kept_groups = {{}, 1};
  family.selection_bias = {{"use_routing_bias"}, false};
  return family;
}();

inline constexpr ModelFamily minimax_m2 = [] {
  ModelFamily family = minimax;
  family.model_types = {"minimax_m2"};
  family.scoring.fallback = "sigmoid";
  family.selection_bias.fallback = true;
  return family;
}();

inline constexpr ModelFamily phimoe = [] {
  ModelFamily family = mixtral;
  family.model_types = {"phimoe"};
  family.scoring = {{}, "sparse_mixer"};
  family.mixer_jitter = {{"router_jitter_noise"}, 0.01};
  family.renormalise = {{}, false};
  return family;
}();

// Source: vLLM's arctic.py and ArcticConfig. The dense MLP beside the block has an input of its own and is no part of
// it.
inline constexpr ModelFamily arctic = [] {
  ModelFamily family = mixtral;
  family.model_types = {"arctic"};
  family.renormalise_single = false;
  family.sparse_step = {{"moe_layer_frequency"}, 2};
  family.sparse_phase = {{}, -1};
  return family;
}();

inline constexpr ModelFamily lfm2_moe{
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

}  // namespace moecl::families
