// Expert gating. One work-group a token: LANES = 1 on a CPU, 32 on a GPU; each step owns 16 experts. Choice scores become
// unsigned keys in local memory that order as the scores do, so that an argmax with ties to the lowest id is a maximum.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

// ScoreFunction, ScoreOrder, GroupScore
enum { SOFTMAX, SIGMOID, NO_FUNCTION };
enum { BEFORE_TOP_K, AFTER_TOP_K };
enum { GROUP_MAX, GROUP_SUM_OF_TOP_2 };

#define FIRST_COLUMN ((int)get_local_id(0) * 16)
#define COLUMN_STEP (LANES * 16)

// Keys: 0 takes no part, 1 is NaN, then -inf up to +inf; -0 and 0 are equal.
inline uint16 keys_of(float16 x) {
  const uint16 bits = select(as_uint16(x), (uint16)(0), x == 0.0f);
  const uint16 keys = bits ^ (as_uint16(as_int16(bits) >> 31) | 0x80000000u);
  return select(keys, (uint16)(1), isnan(x));
}
inline float value_of(uint key) { return key == 1 ? NAN : as_float(key >> 31 ? key ^ 0x80000000u : ~key); }
// The keys of [i, i + 16) below `end`, 0 for the others.
inline uint16 keys_below(const __local uint* keys, int i, int end) { return select((uint16)(0), vload16(0, keys + i), INDEX_16 < end - i); }
// The same of values, NaN for the others.
inline float16 values_below(const __global float* x, int i, int end) {
  const float16 values = LOAD_UPTO16(f32)(x, i, end - i);
  return i + 16 <= end ? values : select((float16)(NAN), values, INDEX_16 < end - i);
}

typedef struct {
  int function;
  float largest, sum;  // softmax
} Score;

// Softmax before the division. NaN has no part; experts at +inf share alike; nothing is left of a row of -inf.
inline float16 softmax_terms(Score score, float16 x) {
  float16 terms = exp(x - score.largest);
  if (score.largest == INFINITY) terms = select((float16)(0.0f), (float16)(1.0f), x == INFINITY);
  return select(terms, (float16)(0.0f), isnan(terms));
}
inline Score score_over(int function, const __global float* x, int count, __local float* scratch) {
  Score score = {function, -INFINITY, 0.0f};
  if (function != SOFTMAX) count = 0;
  float16 largest = -INFINITY, sum = 0.0f;
  for (int i = FIRST_COLUMN; i < count; i += COLUMN_STEP) largest = fmax(largest, values_below(x, i, count));
  score.largest = max_over_lanes(max_of_16(largest), scratch);
  for (int i = FIRST_COLUMN; i < count; i += COLUMN_STEP) sum += softmax_terms(score, values_below(x, i, count));
  score.sum = sum_over_lanes(sum_of_16(sum), scratch);
  return score;
}
inline float16 scores_of(Score score, float16 x) {
  if (score.function == SOFTMAX) {
    const float16 scores = softmax_terms(score, x) / (score.sum > 0.0f ? score.sum : 1.0f);
    return select(scores, (float16)(NAN), isnan(x));
  }
  return score.function == SIGMOID ? 1.0f / (1.0f + exp(-x)) : x;
}

// The key of a group's score.
inline uint group_key(const __local uint* keys, int begin, int end, int group_score) {
  uint16 first = 0, second = 0;
  for (int e = begin; e < end; e += 16) {
    const uint16 next = keys_below(keys, e, end);
    second = max(second, min(first, next));
    first = max(first, next);
  }
  uint best[16], runner_up[16];
  vstore16(first, 0, best);
  vstore16(second, 0, runner_up);
  for (int i = 1; i < 16; ++i) {
    runner_up[0] = max(max(runner_up[0], runner_up[i]), min(best[0], best[i]));
    best[0] = max(best[0], best[i]);
  }
  if (group_score == GROUP_MAX || end - begin == 1) return best[0];
  return keys_of((float16)(value_of(best[0]) + value_of(runner_up[0]))).s0;
}

// Takes the experts of all but the best `kept` groups out.  groups == 0: of none.
inline void keep_best_groups(__local uint* keys, __local uint* group_keys, int experts, int groups, int kept, int group_score) {
  const int size = groups == 0 ? 0 : experts / groups;
  LANES_BARRIER();
  for (int g = get_local_id(0); g < groups; g += LANES) group_keys[g] = group_key(keys, g * size, (g + 1) * size, group_score);
  LANES_BARRIER();
  for (int g = get_local_id(0); g < groups; g += LANES) {
    int better = 0;
    for (int other = 0; other < groups; ++other)
      better += group_keys[other] > group_keys[g] || (group_keys[other] == group_keys[g] && other < g);
    for (int e = g * size; better >= kept && e < (g + 1) * size; ++e) keys[e] = 0;
  }
  LANES_BARRIER();
}

// The candidate with the largest key, of equal ones the first.
inline int best_expert(const __local uint* keys, int experts, __local ulong* scratch) {
  uint16 best = 0, where = 0;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    const uint16 next = vload16(0, keys + e);
    where = select(where, (uint16)(e), next > best);
    best = max(best, next);
  }
  const ulong16 both = convert_ulong16(best) << 32 | convert_ulong16(~(where + as_uint16(INDEX_16)));
  const ulong8 a = max(both.lo, both.hi);
  const ulong4 b = max(a.lo, a.hi);
  const ulong2 c = max(b.lo, b.hi);
  return ~(uint)max_ulong_over_lanes(max(c.lo, c.hi), scratch);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k(
    const __global float* logits, ulong logits_first, const __global float* bias, ulong bias_first, __global int* ids,
    ulong ids_first, __global float* weights, ulong weights_first, long logits_stride, long ids_stride, long weights_stride,
    int experts, int top_k, int function, int order, int groups, int kept_groups, int group_score, int renormalise,
    float epsilon, float scaling_factor, __local uint* keys, __local uint* group_keys) {
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const long token = get_group_id(0);
  logits += logits_first + token * logits_stride;
  bias += bias ? bias_first : 0;
  ids += ids_first + token * ids_stride;
  weights += weights_first + token * weights_stride;

  Score score = score_over(order == BEFORE_TOP_K ? function : NO_FUNCTION, logits, experts, scratch);
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    float16 choice = scores_of(score, values_below(logits, e, experts));
    if (bias) choice += values_below(bias, e, experts);
    vstore16(select((uint16)(0), keys_of(choice), INDEX_16 < experts - e), 0, keys + e);
  }
  keep_best_groups(keys, group_keys, experts, kept_groups < groups ? groups : 0, kept_groups, group_score);

  // The work-item that owns a column of the result writes the chosen logit there and turns it into the weight below:
  // nobody reads what another work-item wrote to global memory.
  for (int k = 0; k < top_k; ++k) {
    const int expert = best_expert(keys, experts, best_scratch);
    if (expert / 16 % LANES == get_local_id(0)) keys[expert] = 0;
    if (k / 16 % LANES == get_local_id(0)) {
      ids[k] = expert;
      weights[k] = logits[expert];
    }
  }

  const Score after = score_over(order == AFTER_TOP_K ? function : NO_FUNCTION, weights, top_k, scratch);
  if (order == AFTER_TOP_K) score = after;
  float16 sum = 0.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) {
    const float16 weight = scores_of(score, values_below(weights, k, top_k));
    const float16 known = select(weight, (float16)(0.0f), isnan(weight));
    sum += known;
    STORE_UPTO16(f32)(known, weights, k, top_k - k);
  }
  const float total = sum_over_lanes(sum_of_16(sum), scratch) + epsilon;
  const float divisor = renormalise && total > 0.0f ? total : 1.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP)
    STORE_UPTO16(f32)(LOAD_UPTO16(f32)(weights, k, top_k - k) / divisor * scaling_factor, weights, k, top_k - k);
}
