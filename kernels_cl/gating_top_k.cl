// Expert gating. One work-group a token: LANES = 1 on a CPU, 64 on a GPU. Choice scores become unsigned keys in local
// memory that order as the scores do; an argmax over (key, lowest id) is then one maximum over 64-bit numbers.
#include "kernels_cl/lib/lanes.clh"

#pragma OPENCL FP_CONTRACT OFF

// ScoreFunction, ScoreOrder, GroupScore
enum { SOFTMAX, SIGMOID, NO_FUNCTION };
enum { BEFORE_TOP_K, AFTER_TOP_K };
enum { GROUP_MAX, GROUP_SUM_OF_TOP_2 };

// Keys: 0 takes no part, 1 is NaN, then -inf up to +inf; -0 and 0 are equal.
#define NOT_A_CANDIDATE 0u
inline uint key_of(float x) {
  if (isnan(x)) return 1u;
  const uint bits = x == 0.0f ? 0u : as_uint(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
inline float value_of(uint key) { return key == 1u ? NAN : as_float(key >> 31 ? key ^ 0x80000000u : ~key); }

// Softmax of values with a given maximum, before the division. NaN has no part; experts at +inf share alike.
inline float softmax_term(float x, float largest) {
  if (isnan(x) || x == -INFINITY) return 0.0f;
  if (isinf(largest)) return x == largest ? 1.0f : 0.0f;
  return exp(x - largest);
}

typedef struct {
  int function;
  float largest, sum;  // softmax
} Score;

inline Score score_over(int function, const __global float* x, int count, __local float* scratch) {
  Score score = {function, -INFINITY, 0.0f};
  if (function != SOFTMAX) return score;
  for (int i = get_local_id(0); i < count; i += LANES) score.largest = fmax(score.largest, x[i]);
  score.largest = max_over_lanes(score.largest, scratch);
  for (int i = get_local_id(0); i < count; i += LANES) score.sum += softmax_term(x[i], score.largest);
  score.sum = sum_over_lanes(score.sum, scratch);
  return score;
}
inline float score_of(Score score, float x) {
  if (isnan(x) || score.function == NO_FUNCTION) return x;
  if (score.function == SIGMOID) return 1.0f / (1.0f + exp(-x));
  return score.sum > 0.0f ? softmax_term(x, score.largest) / score.sum : 0.0f;
}

// Takes the experts of all but the best `kept` groups out.
inline void keep_best_groups(__local uint* keys, __local uint* group_keys, int experts, int groups, int kept, int group_score) {
  const int size = experts / groups;
  LANES_BARRIER();
  for (int g = get_local_id(0); g < groups; g += LANES) {
    uint first = NOT_A_CANDIDATE, second = NOT_A_CANDIDATE;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      second = max(second, min(first, keys[e]));
      first = max(first, keys[e]);
    }
    const bool sum = group_score == GROUP_SUM_OF_TOP_2 && size > 1;
    group_keys[g] = sum ? key_of(value_of(first) + value_of(second)) : first;
  }
  LANES_BARRIER();
  for (int g = get_local_id(0); g < groups; g += LANES) {
    int better = 0;
    for (int other = 0; other < groups; ++other)
      better += group_keys[other] > group_keys[g] || (group_keys[other] == group_keys[g] && other < g);
    for (int e = g * size; better >= kept && e < (g + 1) * size; ++e) keys[e] = NOT_A_CANDIDATE;
  }
  LANES_BARRIER();
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k(
    const __global float* logits, ulong logits_first, const __global float* bias, ulong bias_first, __global int* ids,
    ulong ids_first, __global float* weights, ulong weights_first, long logits_stride, long ids_stride, long weights_stride,
    int experts, int top_k, int function, int order, int groups, int kept_groups, int group_score, int renormalise,
    float epsilon, float scaling_factor, __local uint* keys, __local uint* group_keys) {
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const long token = get_group_id(0);
  const int lane = get_local_id(0);
  logits += logits_first + token * logits_stride;
  ids += ids_first + token * ids_stride;
  weights += weights_first + token * weights_stride;

  const Score before = score_over(order == BEFORE_TOP_K ? function : NO_FUNCTION, logits, experts, scratch);
  for (int e = lane; e < experts; e += LANES) {
    const float score = score_of(before, logits[e]);
    keys[e] = key_of(bias ? score + bias[bias_first + e] : score);
  }
  if (kept_groups < groups) keep_best_groups(keys, group_keys, experts, groups, kept_groups, group_score);

  // The lane that writes choice k also finishes its weight: nobody reads what another work-item wrote to global memory.
  for (int k = 0; k < top_k; ++k) {
    ulong best = 0;
    for (int e = lane; e < experts; e += LANES) best = max(best, (ulong)keys[e] << 32 | (uint)~e);
    best = max_ulong_over_lanes(best, best_scratch);
    const int expert = ~(uint)best;
    if (expert % LANES == lane) keys[expert] = NOT_A_CANDIDATE;
    if (k % LANES == lane) {
      ids[k] = expert;
      weights[k] = score_of(before, logits[expert]);
    }
  }

  const Score after = score_over(order == AFTER_TOP_K ? function : NO_FUNCTION, weights, top_k, scratch);
  float sum = 0.0f;
  for (int k = lane; k < top_k; k += LANES) {
    const float weight = score_of(after, weights[k]);
    weights[k] = isnan(weight) ? 0.0f : weight;
    sum += weights[k];
  }
  float factor = 1.0f;
  sum = sum_over_lanes(sum, scratch) + epsilon;
  if (renormalise && sum > 0.0f) factor = sum;
  for (int k = lane; k < top_k; k += LANES) weights[k] = weights[k] / factor * scaling_factor;
}
