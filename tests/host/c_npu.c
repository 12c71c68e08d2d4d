#include "tests/host/c_npu.h"

#include <moecl/npu_routing.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <stddef.h>
#include <string.h>

enum { N = 4, K = 2, H = 3, S = N * K, FIRST = 1, END = 4 };

static const float x[N][H] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
static const int32_t expert_idx[S] = {3, 1, 0, 2, 1, 3, 2, 5};
// Slots of experts 1, 2 and 3, equal experts in slot order; 0 and 5 are outside the range.
static const int32_t rows[] = {1, 4, 3, 6, 0, 5};
static const int64_t expected_counts[END - FIRST] = {2, 2, 2};

static int32_t count_wrong(const float* expanded, const int32_t* row_of_slot, const int64_t* counts) {
  int32_t wrong = 0;
  for (int slot = 0; slot < S; ++slot) {
    int32_t expected = -1;
    for (int row = 0; row < (int)(sizeof(rows) / sizeof(rows[0])); ++row)
      if (rows[row] == slot) expected = row;
    wrong += row_of_slot[slot] != expected;
    for (int h = 0; h < H && expected >= 0; ++h) wrong += expanded[expected * H + h] != x[slot / K][h];
  }
  for (int i = sizeof(rows) / sizeof(rows[0]) * H; i < S * H; ++i) wrong += expanded[i] != 0;
  for (int e = 0; e < END - FIRST; ++e) wrong += counts[e] != expected_counts[e];
  return wrong;
}

static moecl_tensor matrix(cl_mem memory, moecl_dtype dtype, int64_t height, int64_t width) {
  moecl_tensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.memory = memory;
  tensor.dtype = dtype;
  tensor.rank = 2;
  tensor.shape[0] = height;
  tensor.shape[1] = width;
  return tensor;
}

static const char* run(moecl_context* context, moecl_stream* stream, int32_t* out_wrong) {
  static const int64_t range[] = {FIRST, END};
  cl_context cl_context = NULL;
  cl_command_queue queue = NULL;
  uint64_t workspace_bytes = 0;
  moecl_moe_init_routing_v2_args args;
  memset(&args, 0, sizeof(args));
  args.size_bytes = sizeof(args);
  if (moecl_context_native(context, &cl_context) != MOECL_OK || moecl_stream_native(stream, &queue) != MOECL_OK ||
      moecl_moe_init_routing_v2_defaults(&args) != MOECL_OK)
    return moecl_last_error_message();
  args.x = matrix(NULL, MOECL_F32, N, H);
  args.expert_idx = matrix(NULL, MOECL_I32, N, K);
  args.expert_num = 6;
  args.expert_tokens_num_type = 1;
  args.expert_tokens_num_flag = 1;
  args.active_expert_range.items = range;
  args.active_expert_range.count = 2;
  if (moecl_moe_init_routing_v2_plan(stream, &args, &workspace_bytes) != MOECL_OK) return moecl_last_error_message();

  float expanded[S * H];
  int32_t row_of_slot[S];
  int64_t counts[END - FIRST];
  if (args.expanded_x.shape[0] != S || args.expanded_row_idx.shape[0] != S ||
      args.expert_tokens.shape[0] != END - FIRST)
    return "the plan's shapes";
  const cl_mem_flags copy = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
  moecl_call call;
  memset(&call, 0, sizeof(call));
  call.size_bytes = sizeof(call);
  call.tail = MOECL_TAIL_ZERO;
  cl_mem memory[] = {clCreateBuffer(cl_context, copy, sizeof(x), (void*)x, NULL),
                     clCreateBuffer(cl_context, copy, sizeof(expert_idx), (void*)expert_idx, NULL),
                     clCreateBuffer(cl_context, CL_MEM_READ_WRITE, sizeof(expanded), NULL, NULL),
                     clCreateBuffer(cl_context, CL_MEM_READ_WRITE, sizeof(row_of_slot), NULL, NULL),
                     clCreateBuffer(cl_context, CL_MEM_READ_WRITE, sizeof(counts), NULL, NULL),
                     clCreateBuffer(cl_context, CL_MEM_READ_WRITE, workspace_bytes, NULL, NULL)};
  args.x.memory = memory[0];
  args.expert_idx.memory = memory[1];
  args.expanded_x.memory = memory[2];
  args.expanded_row_idx.memory = memory[3];
  args.expert_tokens.memory = memory[4];
  call.workspace.memory = memory[5];
  const char* failed = NULL;
  if (moecl_moe_init_routing_v2(stream, &args, &call, 0, NULL, NULL) != MOECL_OK)
    failed = moecl_last_error_message();
  else if (clEnqueueReadBuffer(queue, memory[2], CL_FALSE, 0, sizeof(expanded), expanded, 0, NULL, NULL) ||
           clEnqueueReadBuffer(queue, memory[3], CL_FALSE, 0, sizeof(row_of_slot), row_of_slot, 0, NULL, NULL) ||
           clEnqueueReadBuffer(queue, memory[4], CL_TRUE, 0, sizeof(counts), counts, 0, NULL, NULL))
    failed = "clEnqueueReadBuffer";
  else
    *out_wrong = count_wrong(expanded, row_of_slot, counts);
  for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); ++i) clReleaseMemObject(memory[i]);
  return failed;
}

const char* c_npu_run(int32_t device_index, int32_t* out_wrong) {
  moecl_context* context = NULL;
  moecl_stream* stream = NULL;
  const char* failed = NULL;
  if (moecl_context_create(device_index, NULL, &context) != MOECL_OK ||
      moecl_stream_create(context, 0, &stream) != MOECL_OK)
    failed = moecl_last_error_message();
  else
    failed = run(context, stream, out_wrong);
  moecl_stream_destroy(stream);
  moecl_context_destroy(context);
  return failed;
}
