#pragma once
#include <cstdint>

namespace moecl {

/// How a logit becomes a score.
enum class ScoreFunction : std::uint8_t {
  softmax,
  sigmoid,
  none,
  sqrtsoftplus,  ///< sqrt(log(1 + exp(x))). Source: vLLM (DeepSeek-V4)
  sparse_mixer,  ///< for the k-th choice: a softmax over its near competitors, see RouterSpec
};
/// Whether scores are computed over all experts before the choice, or over the chosen logits after it.
enum class ScoreOrder : std::uint8_t { before_top_k, after_top_k };
/// The score by which groups of experts are compared: the largest choice_e of a group, or the sum of its two largest.
enum class GroupScore : std::uint8_t { max, sum_of_top_2 };

/// How a family turns router logits into K experts and their weights; families differ by this data alone.
///
/// score_e  = function(logit_e)                    (before_top_k; after_top_k chooses on the logits themselves)
/// choice_e = score_e + selection_bias_e           (bias optional, a tensor beside the spec)
/// groups   : the E experts form `groups` equal runs; only the best `kept_groups` by `group_score` of choice take part
/// ids      = the top_k largest choice_e, ties to the lowest id, NaN below every number
/// weight_k = score of the chosen, without bias (after_top_k: function over the chosen logits)
/// weight_k /= max(sum of the chosen weights + epsilon, minimum)   (renormalise; a sum of 0 divides by 1)
/// weight_k *= scaling_factor
///
/// With fused_shared_experts, K = top_k - fused_shared_experts experts are chosen in this way.
///
/// sparse_mixer (after_top_k only): weight_k is the softmax share of the k-th choice among the experts that no earlier
/// choice took and that have (logit_k - logit_e) / max(|logit_e|, logit_k) <= 2 mixer_jitter.
///
/// Source: DeepSeek-V3, arXiv:2412.19437, section 2.1.2; Mixtral, arXiv:2401.04088, section 2.1; SparseMixer:
/// Phi-3.5-MoE's modeling_phimoe.py, sparsemixer, in inference
struct RouterSpec {
  std::int32_t top_k = 1;
  ScoreFunction score = ScoreFunction::softmax;
  ScoreOrder order = ScoreOrder::before_top_k;
  std::int32_t groups = 1;
  std::int32_t kept_groups = 1;
  GroupScore group_score = GroupScore::max;
  bool renormalise = false;
  /// Added to the sum before dividing (1e-20 in DeepSeek-V3's reference).
  float renormalise_epsilon = 0.0F;
  float scaling_factor = 1.0F;
  /// Multiply an expert's input by the weight instead of its output (Llama-4); needs top_k == 1.
  bool weight_on_input = false;
  /// Minimum of the divisor when renormalising (1e-12 in ERNIE-4.5).
  float renormalise_minimum = 0.0F;
  float mixer_jitter = 0.0F;  ///< for sparse_mixer
  /// This many of the top_k, the last ones, are not chosen: every token takes the experts whose ids follow those of the
  /// logits, with weight 1, which nothing scales. Source: num_fused_shared_experts of vLLM
  std::int32_t fused_shared_experts = 0;

  std::int32_t chosen() const noexcept { return top_k - fused_shared_experts; }
};

}  // namespace moecl
