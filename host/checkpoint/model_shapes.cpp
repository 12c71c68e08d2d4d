#include <moecl/model_shapes.hpp>

#include <fmt/ranges.h>

#include "runtime/check.hpp"

namespace moecl {
namespace {

// The released config.json files, without token ids and library versions; the later rows also lack the attention
// fields. A quantization_config (DeepSeek-V3, Kimi-K2, gpt-oss) is left out too: a generated checkpoint holds the
// unquantized form.
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
    {"deepseek-v2", "https://huggingface.co/deepseek-ai/DeepSeek-V2", R"({
  "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "torch_dtype": "bfloat16",
  "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60, "vocab_size": 102400,
  "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
  "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy", "scoring_func": "softmax",
  "norm_topk_prob": false, "routed_scaling_factor": 16.0, "first_k_dense_replace": 1, "moe_layer_freq": 1,
  "hidden_act": "silu"
})"},
    {"dots.llm1", "https://huggingface.co/rednote-hilab/dots.llm1.inst", R"({
  "architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 62, "vocab_size": 152064,
  "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6,
  "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
  "hidden_act": "silu"
})"},
    {"ernie-4.5-21b-a3b", "https://huggingface.co/baidu/ERNIE-4.5-21B-A3B-PT", R"({
  "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "torch_dtype": "bfloat16",
  "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "vocab_size": 103424,
  "moe_intermediate_size": 1536, "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2,
  "moe_layer_start_index": 1, "moe_layer_end_index": 27, "moe_layer_interval": 1, "use_bias": false,
  "hidden_act": "silu"
})"},
    {"gpt-oss-20b", "https://huggingface.co/openai/gpt-oss-20b", R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
  "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "vocab_size": 201088,
  "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4, "swiglu_limit": 7.0,
  "router_aux_loss_coef": 0.9, "hidden_act": "silu"
})"},
    {"gpt-oss-120b", "https://huggingface.co/openai/gpt-oss-120b", R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
  "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
  "num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4, "swiglu_limit": 7.0,
  "router_aux_loss_coef": 0.9, "hidden_act": "silu"
})"},
    {"granite-3.1-3b-a800m", "https://huggingface.co/ibm-granite/granite-3.1-3b-a800m-base", R"({
  "architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "torch_dtype": "bfloat16",
  "hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 32, "vocab_size": 49155,
  "num_local_experts": 40, "num_experts_per_tok": 8, "logits_scaling": 6.0, "residual_multiplier": 0.22,
  "hidden_act": "silu"
})"},
    {"hunyuan-a13b", "https://huggingface.co/tencent/Hunyuan-A13B-Instruct", R"({
  "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32, "vocab_size": 128167,
  "num_experts": 64, "moe_topk": 8, "moe_intermediate_size": 3072, "num_shared_expert": 1,
  "use_mixed_mlp_moe": true, "hidden_act": "silu"
})"},
    {"jamba-1.5-mini", "https://huggingface.co/ai21labs/AI21-Jamba-1.5-Mini", R"({
  "architectures": ["JambaForCausalLM"], "model_type": "jamba", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 65536,
  "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
  "hidden_act": "silu"
})"},
    {"kimi-k2", "https://huggingface.co/moonshotai/Kimi-K2-Instruct", R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "torch_dtype": "bfloat16",
  "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "vocab_size": 163840,
  "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
  "routed_scaling_factor": 2.827, "first_k_dense_replace": 1, "moe_layer_freq": 1, "hidden_act": "silu"
})"},
    {"kimi-linear-48b-a3b", "https://huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct", R"({
  "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "torch_dtype": "bfloat16",
  "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "vocab_size": 163840,
  "moe_intermediate_size": 1024, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_token": 8,
  "num_expert_group": 1, "topk_group": 1, "use_grouped_topk": true, "moe_router_activation_func": "sigmoid",
  "moe_renormalize": true, "routed_scaling_factor": 2.446, "first_k_dense_replace": 1, "moe_layer_freq": 1,
  "hidden_act": "silu"
})"},
    {"lfm2-8b-a1b", "https://huggingface.co/LiquidAI/LFM2-8B-A1B", R"({
  "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 24, "vocab_size": 65536,
  "moe_intermediate_size": 1792, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2,
  "norm_topk_prob": true, "use_expert_bias": true, "routed_scaling_factor": 1.0
})"},
    {"llama-4-scout", "https://huggingface.co/meta-llama/Llama-4-Scout-17B-16E", R"({
  "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
  "text_config": {
    "model_type": "llama4_text", "torch_dtype": "bfloat16", "hidden_size": 5120, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "vocab_size": 202048, "num_local_experts": 16,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "hidden_act": "silu"
  }
})"},
    {"llama-4-maverick", "https://huggingface.co/meta-llama/Llama-4-Maverick-17B-128E", R"({
  "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
  "text_config": {
    "model_type": "llama4_text", "torch_dtype": "bfloat16", "hidden_size": 5120, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "vocab_size": 202048, "num_local_experts": 128,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "hidden_act": "silu"
  }
})"},
    {"ling-mini-2.0", "https://huggingface.co/inclusionAI/Ling-mini-2.0", R"({
  "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20, "vocab_size": 157184,
  "moe_intermediate_size": 512, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 8, "topk_group": 4, "score_function": "sigmoid", "moe_router_enable_expert_bias": true,
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "use_bias": false,
  "hidden_act": "silu"
})"},
    {"minimax-m2", "https://huggingface.co/MiniMaxAI/MiniMax-M2", R"({
  "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "torch_dtype": "bfloat16",
  "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "vocab_size": 200064,
  "num_local_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid", "use_routing_bias": true,
  "shared_intermediate_size": 0, "hidden_act": "silu"
})"},
    {"minimax-text-01", "https://huggingface.co/MiniMaxAI/MiniMax-Text-01-hf", R"({
  "architectures": ["MiniMaxForCausalLM"], "model_type": "minimax", "torch_dtype": "bfloat16",
  "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "vocab_size": 200064,
  "num_local_experts": 32, "num_experts_per_tok": 2, "hidden_act": "silu"
})"},
    {"phi-3.5-moe", "https://huggingface.co/microsoft/Phi-3.5-MoE-instruct", R"({
  "architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32, "vocab_size": 32064,
  "num_local_experts": 16, "num_experts_per_tok": 2, "router_jitter_noise": 0.01, "input_jitter_noise": 0.01,
  "hidden_act": "silu"
})"},
    {"qwen3-235b-a22b", "https://huggingface.co/Qwen/Qwen3-235B-A22B", R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
  "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 94, "vocab_size": 151936,
  "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu"
})"},
    {"qwen3-next-80b-a3b", "https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct", R"({
  "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "vocab_size": 151936,
  "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512,
  "num_experts_per_tok": 10, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
  "hidden_act": "silu"
})"},
    {"qwen3-vl-30b-a3b", "https://huggingface.co/Qwen/Qwen3-VL-30B-A3B-Instruct", R"({
  "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
  "text_config": {
    "model_type": "qwen3_vl_moe_text", "dtype": "bfloat16", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 48, "vocab_size": 151936, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "hidden_act": "silu"
  }
})"},
    {"trinity-mini", "https://huggingface.co/arcee-ai/Trinity-Mini", R"({
  "architectures": ["AfmoeForCausalLM"], "model_type": "afmoe", "torch_dtype": "bfloat16",
  "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32, "vocab_size": 200192,
  "moe_intermediate_size": 1024, "num_experts": 128, "num_shared_experts": 1, "num_experts_per_tok": 8,
  "num_dense_layers": 2, "score_func": "sigmoid", "route_norm": true, "route_scale": 2.826, "hidden_act": "silu"
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
