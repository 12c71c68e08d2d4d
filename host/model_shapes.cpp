#include <moecl/model_shapes.hpp>

#include "runtime/check.hpp"

namespace moecl {
namespace {

// The released config.json files without their token ids and library versions. DeepSeek-V3's quantization_config is
// left out too: its weights are released in fp8, a generated checkpoint holds the unquantized form.
constexpr ModelShape shapes[] = {
    {"deepseek-v2-lite", "https://huggingface.co/deepseek-ai/DeepSeek-V2-Lite", R"({
  "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27, "vocab_size": 102400,
  "num_attention_heads": 16, "num_key_value_heads": 16, "attention_bias": false, "attention_dropout": 0.0,
  "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
  "n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false,
  "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "moe_layer_freq": 1, "ep_size": 1, "seq_aux": true,
  "aux_loss_alpha": 0.001, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 163840,
  "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "tie_word_embeddings": false, "use_cache": true
})"},
    {"deepseek-v3", "https://huggingface.co/deepseek-ai/DeepSeek-V3", R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
  "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "vocab_size": 129280,
  "num_attention_heads": 128, "num_key_value_heads": 128, "attention_bias": false, "attention_dropout": 0.0,
  "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "first_k_dense_replace": 3, "moe_layer_freq": 1, "ep_size": 1,
  "num_nextn_predict_layers": 1, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 163840,
  "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "tie_word_embeddings": false, "use_cache": true
})"},
    {"glm-4.5-air", "https://huggingface.co/zai-org/GLM-4.5-Air", R"({
  "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "vocab_size": 151552,
  "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": true,
  "attention_dropout": 0.0, "use_qk_norm": false, "partial_rotary_factor": 0.5,
  "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
  "num_nextn_predict_layers": 1, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-05, "rope_theta": 1000000, "rope_scaling": null, "tie_word_embeddings": false, "use_cache": true
})"},
    {"mixtral-8x7b", "https://huggingface.co/mistralai/Mixtral-8x7B-v0.1", R"({
  "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 32000,
  "num_attention_heads": 32, "num_key_value_heads": 8, "attention_dropout": 0.0, "sliding_window": null,
  "num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": false, "router_aux_loss_coef": 0.02,
  "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "tie_word_embeddings": false, "use_cache": true
})"},
    {"olmoe-1b-7b", "https://huggingface.co/allenai/OLMoE-1B-7B-0924", R"({
  "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "vocab_size": 50304,
  "num_attention_heads": 16, "num_key_value_heads": 16, "attention_bias": false, "attention_dropout": 0.0,
  "clip_qkv": null, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
  "output_router_logits": false, "router_aux_loss_coef": 0.01, "hidden_act": "silu", "initializer_range": 0.02,
  "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null,
  "tie_word_embeddings": false, "use_cache": true
})"},
    {"qwen2-57b-a14b", "https://huggingface.co/Qwen/Qwen2-57B-A14B", R"({
  "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "torch_dtype": "bfloat16",
  "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 151936,
  "num_attention_heads": 28, "num_key_value_heads": 4, "attention_dropout": 0.0, "sliding_window": 131072,
  "use_sliding_window": false, "max_window_layers": 28, "moe_intermediate_size": 2560,
  "shared_expert_intermediate_size": 20480, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
  "decoder_sparse_step": 1, "output_router_logits": false, "router_aux_loss_coef": 0.001, "hidden_act": "silu",
  "initializer_range": 0.02, "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "tie_word_embeddings": false, "use_cache": true
})"},
    {"qwen3-30b-a3b", "https://huggingface.co/Qwen/Qwen3-30B-A3B", R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "vocab_size": 151936,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "attention_bias": false,
  "attention_dropout": 0.0, "sliding_window": null, "use_sliding_window": false, "max_window_layers": 48,
  "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": false, "router_aux_loss_coef": 0.001,
  "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": null, "tie_word_embeddings": false, "use_cache": true
})"},
};

}  // namespace

std::vector<ModelShape> model_shapes() { return {std::begin(shapes), std::end(shapes)}; }

ModelShape model_shape(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ModelShape& shape : shapes) {
    if (name == shape.name) return shape;
    known.emplace_back(shape.name);
  }
  fail(ErrorCode::invalid_argument, "no model shape \"{}\"; there are {}", name, fmt::join(known, ", "));
}

}  // namespace moecl
