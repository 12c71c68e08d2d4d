#include "tests/host/c_layer.h"

#include <moecl/moecl.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { T = 5, H = 24, I = 12, E = 6, K = 2, SHARED = 10 };

// Qwen2-MoE's rules: softmax, weights that sum to 1, a shared expert behind a gate of its own.
static float router[E][H], gate_up[E][2][I][H], down[E][H][I];
static float shared_gate[SHARED][H], shared_up[SHARED][H], shared_down[H][SHARED], shared_expert_gate[H];
static float x[T][H], out[T][H];

static void fill(void* values, size_t size_bytes, uint32_t seed) {
  float* value = values;
  for (size_t i = 0; i < size_bytes / sizeof(float); ++i) {
    seed = seed * 1664525u + 1013904223u;
    value[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

static double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

/// y += weight * down(silu(gate v) * up v)
static void add_expert(const float* gate, const float* up, const float* to, int width, const float* v, double weight,
                       double* y) {
  double inner[I];
  for (int i = 0; i < width; ++i) {
    const double g = dot(gate + i * H, v, H);
    inner[i] = g / (1 + exp(-g)) * dot(up + i * H, v, H);
  }
  for (int h = 0; h < H; ++h)
    for (int i = 0; i < width; ++i) y[h] += weight * (double)to[h * width + i] * inner[i];
}

static void expected_row(const float* v, double* y) {
  double score[E], chosen_sum = 0;
  int chosen[K];
  for (int e = 0; e < E; ++e) score[e] = exp(dot(router[e], v, H));
  for (int k = 0; k < K; ++k) {
    chosen[k] = -1;
    for (int e = 0; e < E; ++e) {
      const int taken = k > 0 && e == chosen[0];
      if (!taken && (chosen[k] < 0 || score[e] > score[chosen[k]])) chosen[k] = e;
    }
    chosen_sum += score[chosen[k]];
  }
  memset(y, 0, H * sizeof(double));
  for (int k = 0; k < K; ++k) {
    const int e = chosen[k];
    add_expert(gate_up[e][0][0], gate_up[e][1][0], down[e][0], I, v, score[e] / chosen_sum, y);
  }
  const double open = 1 / (1 + exp(-dot(shared_expert_gate, v, H)));
  add_expert(shared_gate[0], shared_up[0], shared_down[0], SHARED, v, open, y);
}

static double error_of_out(void) {
  double worst = 0, largest = 0;
  for (int t = 0; t < T; ++t) {
    double expected[H];
    expected_row(x[t], expected);
    for (int h = 0; h < H; ++h) {
      const double difference = fabs(out[t][h] - expected[h]);
      if (isnan(difference) || difference > worst) worst = difference;  // a NaN is kept
      if (fabs(expected[h]) > largest) largest = fabs(expected[h]);
    }
  }
  return worst / largest;
}

static moecl_status make_layer(moecl_stream* stream, moecl_layer** out_layer) {
  moecl_layer_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.size_bytes = sizeof(desc);
  desc.hidden = H;
  desc.intermediate = I;
  desc.shared_intermediate = SHARED;
  desc.experts = E;
  desc.top_k = K;
  desc.score = MOECL_SCORE_SOFTMAX;
  desc.renormalise = 1;
  struct {
    moecl_host_array* array;
    void* values;
    size_t size_bytes;
  } weights[] = {{&desc.router, router, sizeof(router)},
                 {&desc.gate_up, gate_up, sizeof(gate_up)},
                 {&desc.down, down, sizeof(down)},
                 {&desc.shared_gate, shared_gate, sizeof(shared_gate)},
                 {&desc.shared_up, shared_up, sizeof(shared_up)},
                 {&desc.shared_down, shared_down, sizeof(shared_down)},
                 {&desc.shared_expert_gate, shared_expert_gate, sizeof(shared_expert_gate)}};
  for (uint32_t i = 0; i < sizeof(weights) / sizeof(weights[0]); ++i) {
    fill(weights[i].values, weights[i].size_bytes, i + 1);
    weights[i].array->data = weights[i].values;
    weights[i].array->dtype = MOECL_F32;
  }
  return moecl_layer_create(stream, &desc, NULL, out_layer);
}

static const char* run(moecl_context* context, moecl_stream* stream, moecl_layer* layer) {
  cl_context cl_context = NULL;
  cl_command_queue queue = NULL;
  uint64_t workspace_bytes = 0;
  if (moecl_context_native(context, &cl_context) != MOECL_OK || moecl_stream_native(stream, &queue) != MOECL_OK ||
      moecl_layer_workspace_bytes(layer, T, &workspace_bytes) != MOECL_OK)
    return moecl_last_error_message();

  cl_event written = NULL, done = NULL;
  moecl_forward_args args;
  memset(&args, 0, sizeof(args));
  args.size_bytes = sizeof(args);
  args.tokens = T;
  args.x.memory = clCreateBuffer(cl_context, CL_MEM_READ_ONLY, sizeof(x), NULL, NULL);
  args.out.memory = clCreateBuffer(cl_context, CL_MEM_READ_WRITE, sizeof(out), NULL, NULL);
  args.workspace.memory = clCreateBuffer(cl_context, CL_MEM_READ_WRITE, workspace_bytes, NULL, NULL);
  fill(x, sizeof(x), 99);
  const char* failed = NULL;
  if (clEnqueueWriteBuffer(queue, args.x.memory, CL_FALSE, 0, sizeof(x), x, 0, NULL, &written) != CL_SUCCESS)
    failed = "clEnqueueWriteBuffer";
  else if (moecl_layer_forward(layer, stream, &args, 1, &written, &done) != MOECL_OK)
    failed = moecl_last_error_message();
  else if (clEnqueueReadBuffer(queue, args.out.memory, CL_TRUE, 0, sizeof(out), out, 1, &done, NULL) != CL_SUCCESS)
    failed = "clEnqueueReadBuffer";
  if (written != NULL) clReleaseEvent(written);
  if (done != NULL) clReleaseEvent(done);
  clReleaseMemObject(args.workspace.memory);
  clReleaseMemObject(args.out.memory);
  clReleaseMemObject(args.x.memory);
  return failed;
}

const char* c_layer_run(int32_t device_index, double* out_error) {
  moecl_context* context = NULL;
  moecl_stream* stream = NULL;
  moecl_layer* layer = NULL;
  const char* failed = NULL;
  if (moecl_context_create(device_index, NULL, &context) != MOECL_OK ||
      moecl_stream_create(context, 0, &stream) != MOECL_OK || make_layer(stream, &layer) != MOECL_OK)
    failed = moecl_last_error_message();
  else
    failed = run(context, stream, layer);
  moecl_layer_destroy(layer);
  moecl_stream_destroy(stream);
  moecl_context_destroy(context);
  if (failed == NULL) *out_error = error_of_out();
  return failed;
}
