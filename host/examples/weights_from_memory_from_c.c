/* A layer in C with weights in the program's memory. A few lines of plain C compute the expected output. */
#define CL_TARGET_OPENCL_VERSION 120
#include <moecl/moecl.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 5, H = 32, I = 48, E = 6 }; /* tokens, hidden size, intermediate size, experts; each token takes one */

static float router[E][H], gate[E][I][H], up[E][I][H], down[E][H][I], x[T][H], out[T][H];

static void check(int failed, const char* what) {
  if (failed) {
    fprintf(stderr, "%s: %s\n", what, moecl_last_error_message());
    exit(1);
  }
}

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

/* The output of the expert with the largest logit, times its softmax over all experts. */
static void expected_row(const float* v, double* y) {
  double exponentials = 0, largest = -INFINITY, inner[I];
  int e = 0;
  for (int i = 0; i < E; ++i) {
    const double logit = dot(router[i], v, H);
    exponentials += exp(logit);
    if (logit > largest) largest = logit, e = i;
  }
  for (int i = 0; i < I; ++i) {
    const double g = dot(gate[e][i], v, H);
    inner[i] = g / (1 + exp(-g)) * dot(up[e][i], v, H); /* silu */
  }
  for (int h = 0; h < H; ++h) {
    y[h] = 0;
    for (int i = 0; i < I; ++i) y[h] += exp(largest) / exponentials * down[e][h][i] * inner[i];
  }
}

static moecl_host_array f32_array(void* values, size_t size_bytes, uint32_t seed) {
  const moecl_host_array array = {.data = values, .dtype = MOECL_F32};
  fill(values, size_bytes, seed);
  return array;
}

int main(void) {
  moecl_context* context = NULL;
  moecl_stream* stream = NULL;
  moecl_layer* layer = NULL;
  check(moecl_context_create_matching(NULL, NULL, NULL, &context), "context");
  check(moecl_stream_create(context, 0, &stream), "stream");

  moecl_layer_desc desc = {.size_bytes = sizeof(desc), .hidden = H, .intermediate = I, .experts = E, .top_k = 1};
  desc.router = f32_array(router, sizeof(router), 1);
  desc.gate = f32_array(gate, sizeof(gate), 2);
  desc.up = f32_array(up, sizeof(up), 3);
  desc.down = f32_array(down, sizeof(down), 4);
  check(moecl_layer_create(stream, &desc, NULL, &layer), "layer"); /* copies the weights */

  cl_context cl = NULL;
  cl_command_queue queue = NULL;
  uint64_t workspace_bytes = 0;
  check(moecl_context_native(context, &cl), "native context");
  check(moecl_stream_native(stream, &queue), "native queue");
  check(moecl_layer_workspace_bytes(layer, T, &workspace_bytes), "workspace");
  fill(x, sizeof(x), 5);
  moecl_forward_args args = {.size_bytes = sizeof(args), .tokens = T};
  args.x.memory = clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, sizeof(x), x, NULL);
  args.out.memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, sizeof(out), NULL, NULL);
  args.workspace.memory = clCreateBuffer(cl, CL_MEM_READ_WRITE, workspace_bytes, NULL, NULL);
  check(moecl_layer_forward(layer, stream, &args, 0, NULL, NULL), "forward");
  check(clEnqueueReadBuffer(queue, args.out.memory, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL), "read");

  double worst = 0, largest = 0;
  for (int t = 0; t < T; ++t) {
    double expected[H];
    expected_row(x[t], expected);
    for (int h = 0; h < H; ++h) {
      const double difference = fabs(out[t][h] - expected[h]);
      if (isnan(difference) || difference > worst) worst = difference; /* a NaN stays */
      largest = fmax(largest, fabs(expected[h]));
    }
  }
  printf("error %.2g, at most 1e-05\n", worst / largest);

  clReleaseMemObject(args.x.memory);
  clReleaseMemObject(args.out.memory);
  clReleaseMemObject(args.workspace.memory);
  moecl_layer_destroy(layer);
  moecl_stream_destroy(stream);
  moecl_context_destroy(context);
  return worst <= 1e-5 * largest ? 0 : 1;
}
