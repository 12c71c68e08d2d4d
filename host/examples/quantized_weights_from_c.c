/* A layer in C with quantized experts: int4 codes, two in a byte, with a scale for each 32 columns. A few lines of
   plain C compute the expected output from the dequantized weights. */
#define CL_TARGET_OPENCL_VERSION 120
#include <moecl/moecl.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 5, H = 64, I = 96, E = 6 }; /* tokens, hidden size, intermediate size, experts; each token takes one */
enum { GROUP = 32 };

/* Number = (code - 8) * scale: without a zero point, unsigned codes are relative to 8. */
typedef struct {
  uint8_t codes[E * I * H / 2]; /* the first code of a byte is in its low half */
  float scales[E * I * H / GROUP];
} int4_matrices;

static int4_matrices gate, up, down; /* [E, I, H], [E, I, H], [E, H, I] */
static float router[E][H], x[T][H], out[T][H];

static void check(int failed, const char* what) {
  if (failed) {
    fprintf(stderr, "%s: %s\n", what, moecl_last_error_message());
    exit(1);
  }
}

static uint32_t random_bits(uint32_t* seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

static void fill(void* values, size_t size_bytes, uint32_t seed) {
  float* value = values;
  for (size_t i = 0; i < size_bytes / sizeof(float); ++i) value[i] = (float)random_bits(&seed) / 8388608.0f - 1.0f;
}

static moecl_quantized_array int4_array(int4_matrices* matrices, uint32_t seed) {
  const moecl_quantized_array array = {.codes = {.data = matrices->codes, .dtype = MOECL_U4},
                                       .scales = {.data = matrices->scales, .dtype = MOECL_F32},
                                       .group_columns = GROUP};
  fill(matrices->scales, sizeof(matrices->scales), seed);
  for (size_t i = 0; i < sizeof(matrices->codes); ++i) matrices->codes[i] = (uint8_t)(random_bits(&seed) >> 8);
  return array;
}

static double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

/* Dot product of v [n] with row `row` of all experts' rows. */
static double int4_dot(const int4_matrices* matrices, int row, const double* v, int n) {
  double sum = 0;
  for (int i = row * n; i < (row + 1) * n; ++i) {
    const int code = matrices->codes[i / 2] >> (i % 2 * 4) & 15;
    sum += (code - 8) * (double)matrices->scales[i / GROUP] * v[i - row * n];
  }
  return sum;
}

/* The output of the expert with the largest logit, times its softmax over all experts. */
static void expected_row(const float* v, double* y) {
  double exponentials = 0, largest = -INFINITY, inner[I], in[H];
  int e = 0;
  for (int i = 0; i < E; ++i) {
    const double logit = dot(router[i], v, H);
    exponentials += exp(logit);
    if (logit > largest) largest = logit, e = i;
  }
  for (int h = 0; h < H; ++h) in[h] = v[h];
  for (int i = 0; i < I; ++i) {
    const double g = int4_dot(&gate, e * I + i, in, H);
    inner[i] = g / (1 + exp(-g)) * int4_dot(&up, e * I + i, in, H); /* silu */
  }
  for (int h = 0; h < H; ++h) y[h] = exp(largest) / exponentials * int4_dot(&down, e * H + h, inner, I);
}

int main(void) {
  moecl_context* context = NULL;
  moecl_stream* stream = NULL;
  moecl_layer* layer = NULL;
  check(moecl_context_create_matching(NULL, NULL, NULL, &context), "context");
  check(moecl_stream_create(context, 0, &stream), "stream");

  moecl_layer_desc desc = {.size_bytes = sizeof(desc), .hidden = H, .intermediate = I, .experts = E, .top_k = 1};
  fill(router, sizeof(router), 1);
  desc.router.data = router;
  desc.router.dtype = MOECL_F32;
  desc.quantized_gate = int4_array(&gate, 2);
  desc.quantized_up = int4_array(&up, 3);
  desc.quantized_down = int4_array(&down, 4);
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
