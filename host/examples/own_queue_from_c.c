// The same as own_queue.cpp from C: a checkpoint's layer on the engine's own context, queue and memory.
//
// usage: own_queue_from_c DIR, with config.json, model.safetensors and golden.safetensors in it
#define CL_TARGET_OPENCL_VERSION 120
#include <moecl/moecl.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(moecl_status status, const char* what) {
  if (status != MOECL_OK) {
    fprintf(stderr, "%s: %s: %s\n", what, moecl_status_name(status), moecl_last_error_message());
    exit(1);
  }
}

static void check_cl(cl_int status, const char* what) {
  if (status != CL_SUCCESS) {
    fprintf(stderr, "%s: OpenCL status %d\n", what, status);
    exit(1);
  }
}

/// Reads an f32 tensor of a safetensors file. The file has 8 bytes with the length of a JSON header, the header, and
/// the bytes that the header points into. Only for files that the caller trusts.
static float* read_f32(const char* path, const char* name, size_t* out_count) {
  FILE* file = fopen(path, "rb");
  uint64_t header_bytes = 0;
  unsigned long long begin = 0, end = 0;
  if (file == NULL || fread(&header_bytes, sizeof(header_bytes), 1, file) != 1) fail(path, "cannot be read");
  char* header = calloc(header_bytes + 1, 1);
  if (header == NULL || fread(header, 1, header_bytes, file) != header_bytes) fail(path, "is cut short");

  char key[64];
  snprintf(key, sizeof(key), "\"%s\":{", name);
  const char* entry = strstr(header, key);
  const char* offsets = entry != NULL ? strstr(entry, "\"data_offsets\":[") : NULL;
  if (offsets == NULL || sscanf(offsets, "\"data_offsets\":[%llu,%llu", &begin, &end) != 2)
    fail(path, "has no such tensor");
  float* values = malloc(end - begin);
  if (values == NULL || fseek(file, (long)(8 + header_bytes + begin), SEEK_SET) != 0 ||
      fread(values, 1, end - begin, file) != end - begin)
    fail(path, "is cut short");
  free(header);
  fclose(file);
  *out_count = (end - begin) / sizeof(float);
  return values;
}

static moecl_device_info first_usable_device(void) {
  int32_t count = 0;
  check(moecl_device_count(&count), "moecl_device_count");
  for (int32_t i = 0; i < count; ++i) {
    moecl_device_info info = {.size_bytes = sizeof(info)};
    check(moecl_device_describe(i, &info), "moecl_device_describe");
    if (info.refused[0] == '\0') return info;
  }
  fail("moecl", "no usable OpenCL device");
  exit(1);
}

static double relative_error(const float* values, const float* expected, size_t count) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double difference = fabs((double)values[i] - expected[i]);
    if (isnan(difference) || difference > worst) worst = difference;  // a NaN stays
    if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
  }
  return worst / largest;
}

int main(int argc, char** argv) {
  if (argc != 2) fail("usage", "own_queue_from_c DIR");
  char path[4096];
  snprintf(path, sizeof(path), "%s/golden.safetensors", argv[1]);
  size_t count = 0, expected_count = 0;
  float* input = read_f32(path, "hidden_states", &count);
  float* expected = read_f32(path, "output", &expected_count);
  float* output = calloc(count, sizeof(float));
  if (count == 0 || count != expected_count || output == NULL) fail(path, "input and output differ in size");

  // What an inference engine already has: a context and a queue.
  const moecl_device_info device = first_usable_device();
  cl_int status = CL_SUCCESS;
  cl_context engine_context = clCreateContext(NULL, 1, &device.device, NULL, NULL, &status);
  check_cl(status, "clCreateContext");
  cl_command_queue engine_queue = clCreateCommandQueue(engine_context, device.device, 0, &status);
  check_cl(status, "clCreateCommandQueue");

  moecl_context* context = NULL;
  moecl_stream* stream = NULL;
  moecl_layer* layer = NULL;
  check(moecl_context_wrap(engine_context, NULL, &context), "moecl_context_wrap");
  check(moecl_stream_wrap(context, engine_queue, &stream), "moecl_stream_wrap");
  check(moecl_layer_load(stream, argv[1], -1, NULL, &layer), "moecl_layer_load");
  moecl_layer_info info = {.size_bytes = sizeof(info)};
  check(moecl_layer_describe(layer, &info), "moecl_layer_describe");
  const int64_t tokens = (int64_t)count / info.hidden;
  uint64_t workspace_bytes = 0;
  check(moecl_layer_workspace_bytes(layer, tokens, &workspace_bytes), "moecl_layer_workspace_bytes");

  // Input and output share a buffer: tensors may start anywhere in a cl_mem.
  const size_t tensor_bytes = count * sizeof(float);
  cl_mem rows = clCreateBuffer(engine_context, CL_MEM_READ_WRITE, 2 * tensor_bytes, NULL, &status);
  check_cl(status, "clCreateBuffer");
  cl_mem workspace = clCreateBuffer(engine_context, CL_MEM_READ_WRITE, workspace_bytes, NULL, &status);
  check_cl(status, "clCreateBuffer");

  cl_event written = NULL, done = NULL;
  check_cl(clEnqueueWriteBuffer(engine_queue, rows, CL_FALSE, 0, tensor_bytes, input, 0, NULL, &written),
           "clEnqueueWriteBuffer");
  moecl_forward_args args = {.size_bytes = sizeof(args)};
  args.tokens = tokens;
  args.x.memory = rows;
  args.out.memory = rows;
  args.out.offset_bytes = tensor_bytes;
  args.workspace.memory = workspace;
  check(moecl_layer_forward(layer, stream, &args, 1, &written, &done), "moecl_layer_forward");
  check_cl(clEnqueueReadBuffer(engine_queue, rows, CL_TRUE, tensor_bytes, tensor_bytes, output, 1, &done, NULL),
           "clEnqueueReadBuffer");

  const double error = relative_error(output, expected, count);
  printf("error %.2g, at most 1e-05\n", error);

  clReleaseEvent(written);
  clReleaseEvent(done);
  check(moecl_layer_destroy(layer), "moecl_layer_destroy");
  check(moecl_stream_destroy(stream), "moecl_stream_destroy");
  check(moecl_context_destroy(context), "moecl_context_destroy");
  clReleaseMemObject(workspace);
  clReleaseMemObject(rows);
  clReleaseCommandQueue(engine_queue);
  clReleaseContext(engine_context);
  free(output);
  free(expected);
  free(input);
  return error <= 1e-5 ? 0 : 1;
}
