// Expert gating. One work-group a token: LANES = 1 on a CPU, 32 on a GPU; each step owns 16 experts. Choice scores become
// unsigned keys in local memory that order as the scores do, so that an argmax with ties to the lowest id is a maximum.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

// ScoreFunction, ScoreOrder, GroupScore
enum { SOFTMAX, SIGMOID, NO_FUNCTION, SQRT_SOFTPLUS, SPARSE_MIXER };
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
inline float16 nan_from(float16 values, int left) { return left >= 16 ? values : select((float16)(NAN), values, INDEX_16 < left); }
#define VALUES_BELOW(dtype, x, i, end) nan_from(LOAD_UPTO16(dtype)(x, i, (end) - (i)), (end) - (i))

// Scores are terms / divisor.
typedef struct {
  int function;
  float largest, divisor;  // of softmax: the largest value and the sum of the terms
} Score;

// NaN stays NaN. Of infinite values softmax takes the limit: those at +inf share alike, nothing is left of a row of -inf.
inline float16 terms_of(Score score, float16 x) {
  if (score.function == NO_FUNCTION || score.function == SPARSE_MIXER) return x;  // a mixer's shares are what they are
  if (score.function == SQRT_SOFTPLUS) return sqrt(select((float16)(0.0f), x, x > 0.0f) + log1p(exp(-fabs(x))));
  float16 exponent = -x;
  if (score.function == SOFTMAX) exponent = x - score.largest;
  const float16 power = exp(exponent);
  if (score.function == SIGMOID) return 1.0f / (1.0f + power);
  if (!isinf(score.largest)) return power;
  return select(select((float16)(0.0f), (float16)(1.0f), x == INFINITY), x, isnan(x));
}
inline float16 zero_for_nan(float16 x) { return select(x, (float16)(0.0f), isnan(x)); }

// What a sparse mixer gives to `best`, the largest logit of the experts left (those with a key): its softmax among those
// of them that are near.  A comparison with NaN (0 / 0, infinities) keeps an expert.
inline float mixer_share(const __global STORAGE(X_DTYPE) * logits, const __local uint* keys, int experts, float best,
                         float limit, __local float* scratch) {
  const Score score = {SOFTMAX, best, 1.0f};
  float16 sum = 0.0f;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    const float16 x = VALUES_BELOW(X_DTYPE, logits, e, experts);
    const int16 counts = keys_below(keys, e, experts) != 0u && !((best - x) / fmax(fabs(x), best) > limit);
    sum += select((float16)(0.0f), zero_for_nan(terms_of(score, x)), counts);
  }
  const float total = sum_over_lanes(sum_of_16(sum), scratch);
  return total > 0.0f ? zero_for_nan(terms_of(score, (float16)(best))).s0 / total : 0.0f;
}

// The key of a group's score.
inline uint group_key(const __local uint* keys, int begin, int end, int group_score) {
  uint16 first = 0, second = 0;
  for (int e = begin; e < end; e += 16) {
    const uint16 next = keys_below(keys, e, end);
    second = max(second, min(first, next));
    first = max(first, next);
  }
  const uint8 second8 = max(max(second.lo, second.hi), min(first.lo, first.hi)), first8 = max(first.lo, first.hi);
  const uint4 second4 = max(max(second8.lo, second8.hi), min(first8.lo, first8.hi)), first4 = max(first8.lo, first8.hi);
  const uint2 second2 = max(max(second4.lo, second4.hi), min(first4.lo, first4.hi)), first2 = max(first4.lo, first4.hi);
  const uint best = max(first2.lo, first2.hi), runner_up = max(max(second2.lo, second2.hi), min(first2.lo, first2.hi));
  if (group_score == GROUP_MAX || end - begin == 1) return best;
  return keys_of((float16)(value_of(best) + value_of(runner_up))).s0;
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

// The key and the id of the best of 16 experts in one number, in which the lower id of equal keys is the larger.
inline ulong best_of_16(uint16 keys, int first) {
  return max_ulong_of_16(convert_ulong16(keys) << 32 | convert_ulong16(~as_uint16(first + INDEX_16)));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k(
    const __global STORAGE(X_DTYPE) * logits, ulong logits_first, const __global STORAGE(BIAS_DTYPE) * bias, ulong bias_first,
    const __global uchar* finished, ulong finished_first, __global int* ids, ulong ids_first,
    __global STORAGE(WEIGHT_DTYPE) * weights, ulong weights_first, __global float* scores, ulong scores_first,
    long logits_stride, long ids_stride, long weights_stride, long scores_stride, int experts, int top_k, int function,
    int order, int groups, int kept_groups, int group_score, int renormalise, float epsilon, float minimum,
    float scaling_factor, float mixer_limit,
    __local uint* keys, __local uint* group_keys, __local ulong* bests, __local float* chosen) {
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const long token = get_group_id(0);
  logits += logits_first + token * logits_stride;
  bias += bias ? bias_first : 0;
  ids += ids_first + token * ids_stride;
  weights += weights_first + token * weights_stride;
  scores += scores ? scores_first + token * scores_stride : 0;
  const bool is_finished = finished && finished[finished_first + token];

  float16 sum = 0.0f, largest = -INFINITY;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) largest = fmax(largest, VALUES_BELOW(X_DTYPE, logits, e, experts));
  Score score = {order == BEFORE_TOP_K ? function : NO_FUNCTION, max_over_lanes(max_of_16(largest), scratch), 1.0f};
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    const float16 terms = terms_of(score, VALUES_BELOW(X_DTYPE, logits, e, experts));
    sum += zero_for_nan(terms);
    vstore16(as_uint16(terms), 0, keys + e);
  }
  float total = sum_over_lanes(sum_of_16(sum), scratch);
  if (score.function == SOFTMAX && total > 0.0f) score.divisor = total;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    float16 choice = as_float16(vload16(0, keys + e)) / score.divisor;
    if (scores) STORE_UPTO16(f32)(choice, scores, e, experts - e);
    if (bias) choice += VALUES_BELOW(BIAS_DTYPE, bias, e, experts);
    vstore16(select((uint16)(0), keys_of(choice), INDEX_16 < experts - e), 0, keys + e);
  }
  keep_best_groups(keys, group_keys, experts, kept_groups < groups ? groups : 0, kept_groups, group_score);

  // bests[i] is the best of the 16 experts from 16 i on; only those that lost theirs look again. The work-item that owns a
  // column of the result notes the chosen logit and turns it into the weight below: `chosen` needs no barrier.
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) bests[(uint)e / 16] = best_of_16(vload16(0, keys + e), e);
  for (int k = 0; k < top_k; ++k) {
    ulong best = 0;
    for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) best = max(best, bests[(uint)e / 16]);
    const uint expert = ~(uint)max_ulong_over_lanes(best, best_scratch), first = expert / 16 * 16;
    float value = LOAD(X_DTYPE)(logits, expert);
    if (function == SPARSE_MIXER) value = mixer_share(logits, keys, experts, value, mixer_limit, scratch);
    if (expert / 16 % LANES == get_local_id(0)) {
      const uint16 rest = select(vload16(0, keys + first), (uint16)(0), (int)(expert - first) == INDEX_16);
      vstore16(rest, 0, keys + first);
      bests[expert / 16] = best_of_16(rest, first);
    }
    if ((uint)k / 16 % LANES == get_local_id(0)) {
      ids[k] = is_finished ? experts : (int)expert;
      chosen[k] = value;
    }
  }

  largest = -INFINITY;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) largest = fmax(largest, nan_from(vload16(0, chosen + k), top_k - k));
  const float largest_chosen = max_over_lanes(max_of_16(largest), scratch);
  if (order == AFTER_TOP_K) score = (Score){function, largest_chosen, 1.0f};
  sum = 0.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) {
    const float16 terms = zero_for_nan(terms_of(score, nan_from(vload16(0, chosen + k), top_k - k)));
    sum += terms;
    vstore16(terms, 0, chosen + k);
  }
  total = sum_over_lanes(sum_of_16(sum), scratch);
  if (order == AFTER_TOP_K && function == SOFTMAX && total > 0.0f) score.divisor = total;
  total = fmax(total / score.divisor + epsilon, minimum);
  const float norm = renormalise && total > 0.0f ? total : 1.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) {
    const float16 chosen_scores = vload16(0, chosen + k) / score.divisor;
    STORE_UPTO16(WEIGHT_DTYPE)(chosen_scores / norm * scaling_factor, weights, k, top_k - k);
  }
}
