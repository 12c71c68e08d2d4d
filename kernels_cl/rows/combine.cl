// Weighted combine. One work-item a token on a CPU (LANES = 1), 64 and more on a GPU. Each walks the token's rows in order for
// its columns, so the sums are the same whatever the number of lanes.
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/columns.clh"

#pragma OPENCL FP_CONTRACT OFF

#if ROWS_SCALED
#include "kernels_cl/quantize/quantize_row.clh"

inline float16 rounded_to_f32(float16 x) { return x; }
inline float16 rounded_to_bf16(float16 x) { return as_float16(convert_uint16(bf16_bits16(x)) << 16); }

inline float16 load_scaled(const __global STORAGE(ROWS_DTYPE) * row, const __global STORAGE(SCALE_DTYPE) * scale, int first,
                           int hidden) {
  float each[16];
  for (int j = 0; j < 16; ++j)
    each[j] = STEP_COLUMN(first, j) < hidden ? LOAD(SCALE_DTYPE)(scale, STEP_COLUMN(first, j) / 8) : 0.0f;
  return JOIN(rounded_to_, SCALE_DTYPE)(LOAD_STEP(ROWS_DTYPE)(row, first, hidden) * vload16(0, each));
}
#define LOAD_ROW(row, first, hidden) \
  load_scaled(rows + (long)(row) * rows_stride, rows_scale + rows_scale_first + (long)(row) * (hidden / 8), first, hidden)
#else
#define LOAD_ROW(row, first, hidden) LOAD_STEP(ROWS_DTYPE)(rows + (long)(row) * rows_stride, first, hidden)
#endif

// Slots whose rows a GPU asks for together, since a loop would wait for each of them.
#define AHEAD (LANES == 1 ? 1 : 4)
#define FOR_AHEAD _Pragma("unroll") for (int i = 0; i < AHEAD; ++i)
#define EXISTS(row) ((row) >= 0 && (uint)(row) < row_count)
#define AT(p, first) ((p) ? (p) + (first) : (p))

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void combine(
    const __global STORAGE(ROWS_DTYPE) * rows, ulong rows_first, const __global STORAGE(SCALE_DTYPE) * rows_scale,
    ulong rows_scale_first, const __global int* slot_rows, ulong slot_rows_first,
    const __global int* slot_ends, ulong slot_ends_first, const __global STORAGE(WEIGHTS_DTYPE) * weights,
    ulong weights_first, const __global STORAGE(BIAS_DTYPE) * bias, ulong bias_first, const __global int* bias_ids,
    ulong bias_ids_first, const __global STORAGE(SHARED_DTYPE) * shared, ulong shared_first,
    const __global float* shared_gate, ulong shared_gate_first, const __global STORAGE(SHARED_DTYPE) * residual,
    ulong residual_first, const __global int* active, ulong active_first, __global STORAGE(OUT_DTYPE) * out, ulong out_first, long rows_stride, long weights_stride,
    long bias_stride, long ids_stride, long shared_stride, long gate_stride, long residual_stride, long out_stride,
    long token_slots, long k_slots, uint row_count, int slot_count, int top_k, int hidden, int bias_count, int shared_token,
    int shared_count, float shared_scale, int skip_zero_weights) {
  const long token = get_group_id(0);
  if (active && active[active_first + token] == 0) return;
  rows += rows_first;
  slot_rows += slot_rows_first;
  weights = AT(weights, weights_first);
  int begin = 0, end = top_k;
  if (slot_ends) {
    slot_ends += slot_ends_first;
    begin = token == 0 ? 0 : max(slot_ends[token - 1], 0);
    end = min(slot_ends[token], slot_count);
  } else {
    slot_rows += token * token_slots;
    if (weights) weights += token * weights_stride;
  }
  bias = AT(bias, bias_first);
  if (bias_ids) bias_ids += bias_ids_first + token * ids_stride;
  const long shared_row = token - shared_token;
  shared = shared && shared_row >= 0 && shared_row < shared_count ? shared + shared_first + shared_row * shared_stride : 0;
  const float gate =
      shared_scale * (shared_gate ? 1.0f / (1.0f + exp(-shared_gate[shared_gate_first + token * gate_stride])) : 1.0f);
  if (residual) residual += residual_first + token * residual_stride;
  out += out_first + token * out_stride;

  FOR_EACH_STEP(first, hidden) {
    float16 sum = 0.0f;
    for (int some = begin; some < end; some += AHEAD) {
      int row[AHEAD];
      float weight[AHEAD];
      float16 x[AHEAD];
      FOR_AHEAD row[i] = some + i < end ? slot_rows[(some + i) * k_slots] : -1;  // rusticl 22.3 compares it wrongly as a long
      FOR_AHEAD {
        const bool is_used = BIAS ? some + i < end : EXISTS(row[i]);
        weight[i] = weights && is_used ? LOAD(WEIGHTS_DTYPE)(weights, slot_ends ? row[i] : some + i) : 1.0f;
      }
      FOR_AHEAD {
        x[i] = 0.0f;
        if (EXISTS(row[i])) x[i] = LOAD_ROW(row[i], first, hidden);
      }
      FOR_AHEAD {
#if BIAS
        if (some + i >= end) break;
        const int expert = bias_ids[some + i];
        if (expert >= 0 && expert < bias_count) x[i] += LOAD_STEP(BIAS_DTYPE)(bias + (long)expert * bias_stride, first, hidden);
        sum += weight[i] * x[i];
#else
        if (EXISTS(row[i]) && !(skip_zero_weights && weight[i] == 0.0f)) sum += weight[i] * x[i];
#endif
      }
    }
    if (shared) sum += gate * LOAD_STEP(SHARED_DTYPE)(shared, first, hidden);
    if (residual) sum += LOAD_STEP(SHARED_DTYPE)(residual, first, hidden);
    STORE_STEP(OUT_DTYPE)(sum, out, first, hidden);
  }
}
