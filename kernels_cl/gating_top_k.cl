// Expert gating. One work-group a token: LANES = 1 on a CPU, 32 on a GPU. Choice scores become
// unsigned keys in local memory that order as the scores do, so that an argmax with ties to the lowest id is a maximum.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

// A step of a lane: 16 experts on a CPU, a vector; 4 on a GPU, whose lanes share the work better so.
#if LANES == 1
#define STEP 16
#define INDEX INDEX_16
#define LOAD_UPTO LOAD_UPTO16
#define STORE_UPTO STORE_UPTO16
#define MAX_OF max_of_16
#define SUM_OF sum_of_16
#define MAX_ULONG_OF max_ulong_of_16
#else
#define STEP 4
#define INDEX ((int4)(0, 1, 2, 3))
#define LOAD_UPTO(dtype) JOIN(load_upto4_, dtype)
#define STORE_UPTO(dtype) JOIN(store_upto4_, dtype)
#define MAX_OF max_of_4
#define SUM_OF sum_of_4
#define MAX_ULONG_OF max_ulong_of_4
#endif
typedef JOIN(float, STEP) floats;
typedef JOIN(int, STEP) ints;
typedef JOIN(uint, STEP) uints;
typedef JOIN(ulong, STEP) ulongs;
#define VLOAD JOIN(vload, STEP)
#define VSTORE JOIN(vstore, STEP)
#define AS_FLOATS JOIN(as_float, STEP)
#define AS_INTS JOIN(as_int, STEP)
#define AS_UINTS JOIN(as_uint, STEP)
#define TO_ULONGS JOIN(convert_ulong, STEP)

// ScoreFunction, ScoreOrder, GroupScore
enum { SOFTMAX, SIGMOID, NO_FUNCTION, SQRT_SOFTPLUS, SPARSE_MIXER };
enum { BEFORE_TOP_K, AFTER_TOP_K };
enum { GROUP_MAX, GROUP_SUM_OF_TOP_2 };

#define FIRST_COLUMN ((int)get_local_id(0) * STEP)
#define COLUMN_STEP (LANES * STEP)

// Keys: 0 takes no part, 1 is NaN, then -inf up to +inf; -0 and 0 are equal.
inline uints keys_of(floats x) {
  const uints bits = select(AS_UINTS(x), (uints)(0), x == 0.0f);
  const uints keys = bits ^ (AS_UINTS(AS_INTS(bits) >> 31) | 0x80000000u);
  return select(keys, (uints)(1), isnan(x));
}
inline float value_of(uint key) { return key == 1 ? NAN : as_float(key >> 31 ? key ^ 0x80000000u : ~key); }
// The keys of [i, i + STEP) below `end`, 0 for the others.
inline uints keys_below(const __local uint* keys, int i, int end) { return select((uints)(0), VLOAD(0, keys + i), INDEX < end - i); }
// The same of values, NaN for the others.
inline floats nan_from(floats values, int left) { return left >= STEP ? values : select((floats)(NAN), values, INDEX < left); }
#define VALUES_BELOW(dtype, x, i, end) nan_from(LOAD_UPTO(dtype)(x, i, (end) - (i)), (end) - (i))

// Scores are terms / divisor.
typedef struct {
  int function;
  float largest, divisor;  // of softmax: the largest value and the sum of the terms
} Score;

// NaN stays NaN. Of infinite values softmax takes the limit: those at +inf share alike, nothing is left of a row of -inf.
inline floats terms_of(Score score, floats x) {
  if (score.function == NO_FUNCTION || score.function == SPARSE_MIXER) return x;  // a mixer's shares are what they are
  if (score.function == SQRT_SOFTPLUS) return sqrt(select((floats)(0.0f), x, x > 0.0f) + log1p(exp(-fabs(x))));
  floats exponent = -x;
  if (score.function == SOFTMAX) exponent = x - score.largest;
  const floats power = exp(exponent);
  if (score.function == SIGMOID) return 1.0f / (1.0f + power);
  if (!isinf(score.largest)) return power;
  return select(select((floats)(0.0f), (floats)(1.0f), x == INFINITY), x, isnan(x));
}
inline floats zero_for_nan(floats x) { return select(x, (floats)(0.0f), isnan(x)); }

// What a sparse mixer gives to `best`, the largest logit of the experts left (those with a key): its softmax among those
// of them that are near.  A comparison with NaN (0 / 0, infinities) keeps an expert.
inline float mixer_share(const __global STORAGE(X_DTYPE) * logits, const __local uint* keys, int experts, float best,
                         float limit, __local float* scratch) {
  const Score score = {SOFTMAX, best, 1.0f};
  floats sum = 0.0f;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    const floats x = VALUES_BELOW(X_DTYPE, logits, e, experts);
    const ints counts = keys_below(keys, e, experts) != 0u && !((best - x) / fmax(fabs(x), best) > limit);
    sum += select((floats)(0.0f), zero_for_nan(terms_of(score, x)), counts);
  }
  const float total = sum_over_lanes(SUM_OF(sum), scratch);
  return total > 0.0f ? zero_for_nan(terms_of(score, (floats)(best))).s0 / total : 0.0f;
}

// The key of a group's score.
inline uint group_key(const __local uint* keys, int begin, int end, int group_score) {
  uints first = 0, second = 0;
  for (int e = begin; e < end; e += STEP) {
    const uints next = keys_below(keys, e, end);
    second = max(second, min(first, next));
    first = max(first, next);
  }
#if STEP == 16
  const uint8 second8 = max(max(second.lo, second.hi), min(first.lo, first.hi)), first8 = max(first.lo, first.hi);
  const uint4 second4 = max(max(second8.lo, second8.hi), min(first8.lo, first8.hi)), first4 = max(first8.lo, first8.hi);
#else
  const uint4 second4 = second, first4 = first;
#endif
  const uint2 second2 = max(max(second4.lo, second4.hi), min(first4.lo, first4.hi)), first2 = max(first4.lo, first4.hi);
  const uint best = max(first2.lo, first2.hi), runner_up = max(max(second2.lo, second2.hi), min(first2.lo, first2.hi));
  if (group_score == GROUP_MAX || end - begin == 1) return best;
  return keys_of((floats)(value_of(best) + value_of(runner_up))).s0;
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

// The key and the id of the best of STEP experts in one number, in which the lower id of equal keys is the larger.
inline ulong best_of_step(uints keys, int first) {
  return MAX_ULONG_OF(TO_ULONGS(keys) << 32 | TO_ULONGS(~AS_UINTS(first + INDEX)));
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

  floats sum = 0.0f, largest = -INFINITY;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) largest = fmax(largest, VALUES_BELOW(X_DTYPE, logits, e, experts));
  Score score = {order == BEFORE_TOP_K ? function : NO_FUNCTION, max_over_lanes(MAX_OF(largest), scratch), 1.0f};
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    const floats terms = terms_of(score, VALUES_BELOW(X_DTYPE, logits, e, experts));
    sum += zero_for_nan(terms);
    VSTORE(AS_UINTS(terms), 0, keys + e);
  }
  float total = sum_over_lanes(SUM_OF(sum), scratch);
  if (score.function == SOFTMAX && total > 0.0f) score.divisor = total;
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) {
    floats choice = AS_FLOATS(VLOAD(0, keys + e)) / score.divisor;
    if (scores) STORE_UPTO(f32)(choice, scores, e, experts - e);
    if (bias) choice += VALUES_BELOW(BIAS_DTYPE, bias, e, experts);
    VSTORE(select((uints)(0), keys_of(choice), INDEX < experts - e), 0, keys + e);
  }
  keep_best_groups(keys, group_keys, experts, kept_groups < groups ? groups : 0, kept_groups, group_score);

  // bests[i] is the best of the STEP experts from STEP i on; only those that lost theirs look again. The work-item that owns a
  // column of the result notes the chosen logit and turns it into the weight below: `chosen` needs no barrier.
  for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) bests[(uint)e / STEP] = best_of_step(VLOAD(0, keys + e), e);
  for (int k = 0; k < top_k; ++k) {
    ulong best = 0;
    for (int e = FIRST_COLUMN; e < experts; e += COLUMN_STEP) best = max(best, bests[(uint)e / STEP]);
    const uint expert = ~(uint)max_ulong_over_lanes(best, best_scratch), first = expert / STEP * STEP;
    float value = LOAD(X_DTYPE)(logits, expert);
    if (function == SPARSE_MIXER) value = mixer_share(logits, keys, experts, value, mixer_limit, scratch);
    if (expert / STEP % LANES == get_local_id(0)) {
      const uints rest = select(VLOAD(0, keys + first), (uints)(0), (int)(expert - first) == INDEX);
      VSTORE(rest, 0, keys + first);
      bests[expert / STEP] = best_of_step(rest, first);
    }
    if ((uint)k / STEP % LANES == get_local_id(0)) {
      ids[k] = is_finished ? experts : (int)expert;
      chosen[k] = value;
    }
  }

  largest = -INFINITY;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) largest = fmax(largest, nan_from(VLOAD(0, chosen + k), top_k - k));
  const float largest_chosen = max_over_lanes(MAX_OF(largest), scratch);
  if (order == AFTER_TOP_K) score = (Score){function, largest_chosen, 1.0f};
  sum = 0.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) {
    const floats terms = zero_for_nan(terms_of(score, nan_from(VLOAD(0, chosen + k), top_k - k)));
    sum += terms;
    VSTORE(terms, 0, chosen + k);
  }
  total = sum_over_lanes(SUM_OF(sum), scratch);
  if (order == AFTER_TOP_K && function == SOFTMAX && total > 0.0f) score.divisor = total;
  total = fmax(total / score.divisor + epsilon, minimum);
  const float norm = renormalise && total > 0.0f ? total : 1.0f;
  for (int k = FIRST_COLUMN; k < top_k; k += COLUMN_STEP) {
    const floats chosen_scores = VLOAD(0, chosen + k) / score.divisor;
    STORE_UPTO(WEIGHT_DTYPE)(chosen_scores / norm * scaling_factor, weights, k, top_k - k);
  }
}
