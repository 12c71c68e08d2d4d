// Weighted sum of the rows of each token. LANES work-items per token: 1 on a CPU, 64 or more on a GPU. Each work-item
// adds the token's rows in order for its own columns, so the sums do not depend on the number of lanes.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/rows/combine_args.h"

#pragma OPENCL FP_CONTRACT OFF

// Slots whose rows a GPU loads together. A loop over single slots would wait for each load.
enum { AHEAD = LANES == 1 ? 1 : 4 };

#if ROWS_SCALED
#include "kernels_cl/quantize/quantize_row.clh"

inline float16 rounded_to_f32(float16 x) { return x; }
inline float16 rounded_to_bf16(float16 x) { return as_float16(convert_uint16(bf16_bits16(x)) << 16); }
#endif

// Loads a step of a row. -DROWS_SCALED=1: the row has one scale per 8 columns.
inline float16 load_row(const __global STORAGE(ROWS_DTYPE)* row, const __global STORAGE(SCALE_DTYPE)* scale, int first,
                        int hidden) {
  const float16 x = OF(load_step, ROWS_DTYPE)(row, first, hidden);
#if ROWS_SCALED
  float each[16];
  for (int j = 0; j < 16; ++j)
    each[j] = step_column(first, j) < hidden ? OF(load, SCALE_DTYPE)(scale, step_column(first, j) / 8) : 0.0f;
  return OF(rounded_to, SCALE_DTYPE)(x * vload16(0, each));
#else
  return x;
#endif
}

inline bool row_exists(int row, int rows) { return row >= 0 && row < rows; }

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void combine(
    const __global STORAGE(ROWS_DTYPE)* rows, const __global STORAGE(SCALE_DTYPE)* rows_scale,
    const __global int* slot_rows, const __global int* slot_ends, const __global STORAGE(WEIGHTS_DTYPE)* weights,
    const __global STORAGE(BIAS_DTYPE)* bias, const __global int* bias_ids,
    const __global STORAGE(SHARED_DTYPE)* shared, const __global float* shared_gate,
    const __global STORAGE(SHARED_DTYPE)* residual, const __global int* active, __global STORAGE(OUT_DTYPE)* out,
    const combine_args given) {
  const combine_args args = given;
  const int hidden = args.hidden;
  const long token = get_group_id(0);
  if (active && active[args.active_first + token] == 0) return;
  rows += args.rows_first;
  rows_scale += args.rows_scale_first;
  slot_rows += args.slot_rows_first;
  if (weights) weights += args.weights_first;
  int begin = 0, end = args.top_k;
  if (slot_ends) {
    slot_ends += args.slot_ends_first;
    begin = token == 0 ? 0 : max(slot_ends[token - 1], 0);
    end = min(slot_ends[token], args.slot_count);
  } else {
    slot_rows += token * args.token_slots;
    if (weights) weights += token * args.weights_stride;
  }
  if (bias) bias += args.bias_first;
  if (bias_ids) bias_ids += args.bias_ids_first + token * args.bias_ids_stride;
  const long shared_row = token - args.shared_token;
  if (shared_row < 0 || shared_row >= args.shared_count) shared = 0;
  if (shared) shared += args.shared_first + shared_row * args.shared_stride;
  float gate = args.shared_scale;
  if (shared_gate) {
    const float logit = shared_gate[args.shared_gate_first + token * args.shared_gate_stride];
    gate *= 1.0f / (1.0f + exp(-logit));
  }
  if (residual) residual += args.residual_first + token * args.residual_stride;
  out += args.out_first + token * args.out_stride;

  FOR_EACH_STEP (first, hidden) {
    float16 sum = 0.0f;
    for (int some = begin; some < end; some += AHEAD) {
      int row[AHEAD];
      float weight[AHEAD];
      float16 x[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)  // rusticl 22.3 compares the row wrongly as a long
        row[i] = some + i < end ? slot_rows[(some + i) * args.k_slots] : -1;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const bool is_used = BIAS ? some + i < end : row_exists(row[i], args.row_count);
        weight[i] = weights && is_used ? OF(load, WEIGHTS_DTYPE)(weights, slot_ends ? row[i] : some + i) : 1.0f;
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) x[i] = 0.0f;
      // For a slot without a row a GPU loads row 0, so that there is no branch between the loads.
      if (LANES == 1 ? row_exists(row[0], args.row_count) : args.row_count > 0)
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
          const long at = row_exists(row[i], args.row_count) ? row[i] : 0;
          x[i] = load_row(rows + at * args.rows_stride, rows_scale + at * (hidden / 8), first, hidden);
        }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
#if BIAS
        if (some + i >= end) break;
        if (!row_exists(row[i], args.row_count)) x[i] = 0.0f;
        const int expert = bias_ids[some + i];
        if (expert >= 0 && expert < args.bias_count)
          x[i] += OF(load_step, BIAS_DTYPE)(bias + expert * args.bias_stride, first, hidden);
        sum += weight[i] * x[i];
#else
        const bool skipped = args.skip_zero_weights && weight[i] == 0.0f;
        if (row_exists(row[i], args.row_count) && !skipped) sum += weight[i] * x[i];
#endif
      }
    }
    if (shared) sum += gate * OF(load_step, SHARED_DTYPE)(shared, first, hidden);
    if (residual) sum += OF(load_step, SHARED_DTYPE)(residual, first, hidden);
    OF(store_step, OUT_DTYPE)(sum, out, first, hidden);
  }
}
