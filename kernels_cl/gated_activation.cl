// Activation between an expert's two products. One work-item a row on a CPU (LANES = 1), 64 and more on a GPU. Quantized
// rows are computed twice, once for the largest value and once to write.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/columns.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/quantize_row.clh"
#include "kernels_cl/lib/rows.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

// What -DFUNCTION names (ActivationFunction), of gate g and up u. Comparisons are false for NaN, so a NaN stays one.
inline float16 sigmoid16(float16 x) { return 1.0f / (1.0f + exp(-x)); }
inline float16 apply_silu(float16 g, float16 u, float alpha, float limit) { return g * sigmoid16(g) * u; }
inline float16 apply_gelu(float16 g, float16 u, float alpha, float limit) {
  return 0.5f * g * (1.0f + erf(g * M_SQRT1_2_F)) * u;
}
inline float16 apply_gelu_tanh(float16 g, float16 u, float alpha, float limit) {
  const float sqrt_2_by_pi = M_2_SQRTPI_F * M_SQRT1_2_F;
  return 0.5f * g * (1.0f + tanh(sqrt_2_by_pi * (g + 0.044715f * g * g * g))) * u;
}
inline float16 apply_swigluoai(float16 g, float16 u, float alpha, float limit) {
  g = select(g, (float16)(limit), g > limit);
  u = select(u, (float16)(limit), u > limit);
  u = select(u, (float16)(-limit), u < -limit);
  return (u + 1.0f) * (g * sigmoid16(alpha * g));
}
inline float16 apply_relu2(float16 g, float16 u, float alpha, float limit) {
  g = select(g, (float16)(0.0f), g < 0.0f);
  return g * g * u;
}

typedef struct {
  int gated, interleaved;
  float alpha, limit;
} Activation;

// Gate and up stand in neighbouring columns.
inline void load_pairs(const __global STORAGE(X_DTYPE) * x, int first, int width, float16* g, float16* u) {
#if LANES == 1
  const int left = width - first;
  const float16 low = LOAD_UPTO16(X_DTYPE)(x, 2 * first, 2 * left);
  const float16 high = LOAD_UPTO16(X_DTYPE)(x, 2 * first + 16, 2 * left - 16);
  *g = (float16)(low.even, high.even);
  *u = (float16)(low.odd, high.odd);
#else
  float gate[16], up[16];
  for (int j = 0; j < 16; ++j) {
    const int column = STEP_COLUMN(first, j);
    gate[j] = column < width ? LOAD(X_DTYPE)(x, 2 * column) : 0.0f;
    up[j] = column < width ? LOAD(X_DTYPE)(x, 2 * column + 1) : 0.0f;
  }
  *g = vload16(0, gate);
  *u = vload16(0, up);
#endif
}

inline float16 activated(Activation a, const __global STORAGE(X_DTYPE) * x, int first, int width) {
  float16 g, u = 1.0f;
  if (a.interleaved) {
    load_pairs(x, first, width, &g, &u);
  } else {
    g = LOAD_STEP(X_DTYPE)(x, first, width);
    if (a.gated) u = LOAD_STEP(X_DTYPE)(x + width, first, width);
  }
  return JOIN(apply_, FUNCTION)(g, u, a.alpha, a.limit);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gated_activation(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* row_ends, ulong row_ends_first,
    __global STORAGE(OUT_DTYPE) * out, ulong out_first, __global float* scale, ulong scale_first, long x_stride, long out_stride,
    int width, int experts, long rows_per_expert, int gated, int interleaved, float alpha, float limit) {
  __local int scratch[LANES];
  const long row = get_group_id(0);
  const Activation a = {gated, interleaved, alpha, limit};
  x += x_first + row * x_stride;
  out += out_first + row * out_stride;
  // An invalid row has no columns: all work-items still meet at the barriers.
  const bool valid = !row_ends || row_is_valid(row, row_ends + row_ends_first, experts, rows_per_expert);
  if (!valid) width = 0;

#if QUANTIZE
  int16 largest = 0;
  FOR_EACH_STEP(first, width) largest = max(largest, magnitude_bits(activated(a, x, first, width)));
  const float amax = as_float(max_int_over_lanes(max_int_of_16(largest), scratch));
  const Quantizer quantizer = symmetric_quantizer(amax, 127.0f, DIVIDE);
  if (get_local_id(0) == 0 && valid) scale[scale_first + row] = quantizer.scale;
#endif
  FOR_EACH_STEP(first, width) {
    float16 y = activated(a, x, first, width);
#if QUANTIZE
    y = symmetric_codes(quantizer, y);
#endif
    STORE_STEP(OUT_DTYPE)(y, out, first, width);
  }
}
