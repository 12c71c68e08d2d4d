#define _POSIX_C_SOURCE 200112L
#include "tests/host/c_ranks.h"

#include <moecl/npu_distribute.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 4, T = 5, K = 2, H = 6, EXPERTS_EACH = 2, MOST_ROWS = MOST_RANKS * T * K };

struct rank {
  int32_t rank, ranks;
  moecl_context* context;
  moecl_stream* stream;
  moecl_communicator* communicator;
  cl_command_queue queue;
  int32_t ok, wrong;
};

#define CHECK(call)                                                                         \
  if ((call) != MOECL_OK) {                                                                 \
    fprintf(stderr, "rank %d: %s: %s\n", (int)me->rank, #call, moecl_last_error_message()); \
    return 0;                                                                               \
  }
#define CHECK_CL(call)                                             \
  if ((call) != CL_SUCCESS) {                                      \
    fprintf(stderr, "rank %d: %s failed\n", (int)me->rank, #call); \
    return 0;                                                      \
  }

// Every rank can compute what every other rank brings.
static float input(int32_t rank, int32_t token, int32_t column) { return (float)(100 * rank + 10 * token + column); }
static int32_t expert_of(int32_t ranks, int32_t rank, int32_t token, int32_t k) {
  return (3 * rank + token * token + k * (1 + token % 2)) % (ranks * EXPERTS_EACH);
}
static float weight_of(int32_t token, int32_t k) { return k == 0 ? 0.5F : 0.25F * (float)(1 + token); }

static float expected_output(int32_t ranks, int32_t rank, int32_t token, int32_t column) {
  float sum = 0;
  for (int32_t k = 0; k < K; ++k)
    sum += weight_of(token, k) * (float)(1 + expert_of(ranks, rank, token, k)) * input(rank, token, column);
  return sum;
}

static cl_mem memory_of(const struct rank* me, const void* data, size_t bytes) {
  cl_context context = NULL;
  if (moecl_context_native(me->context, &context) != MOECL_OK) return NULL;
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (data != NULL ? CL_MEM_COPY_HOST_PTR : 0);
  return clCreateBuffer(context, flags, bytes != 0 ? bytes : 1, (void*)data, NULL);
}

static moecl_tensor matrix(const struct rank* me, int32_t dtype, int64_t rows, int64_t columns, const void* data) {
  moecl_tensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.memory = memory_of(me, data, (size_t)(rows * columns) * 4);
  tensor.dtype = dtype;
  tensor.rank = 2;
  tensor.shape[0] = rows;
  tensor.shape[1] = columns;
  return tensor;
}

/// Memory for an output that the plan described.
static void give_memory(const struct rank* me, moecl_tensor* tensor) {
  size_t bytes = tensor->dtype == MOECL_I64 ? 8 : 4;
  for (int32_t d = 0; d < tensor->rank; ++d) bytes *= (size_t)tensor->shape[d];
  if (tensor->rank != 0) tensor->memory = memory_of(me, NULL, bytes);
}

static moecl_call call_with(const struct rank* me, uint64_t workspace_bytes) {
  moecl_call call;
  const int32_t no_fault[4] = {0, 0, 0, 0};
  memset(&call, 0, sizeof(call));
  call.size_bytes = sizeof(call);
  call.workspace.memory = memory_of(me, NULL, workspace_bytes);
  call.fault.memory = memory_of(me, no_fault, sizeof(no_fault));
  return call;
}

/// Rows stand in the order expert, source rank, token. The expert's result takes the place of each row.
static int32_t run_experts(struct rank* me, const moecl_moe_distribute_dispatch_v2_args* dispatched) {
  float rows[MOST_ROWS * H];
  int64_t counts[EXPERTS_EACH];
  int32_t next = 0;
  const size_t bytes = (size_t)dispatched->expand_x.shape[0] * H * sizeof(float);
  if (bytes > sizeof(rows)) return 0;
  CHECK_CL(clEnqueueReadBuffer(me->queue, dispatched->expand_x.memory, CL_TRUE, 0, bytes, rows, 0, NULL, NULL));
  CHECK_CL(clEnqueueReadBuffer(me->queue, dispatched->expert_token_nums.memory, CL_TRUE, 0, sizeof(counts), counts, 0,
                               NULL, NULL));
  for (int32_t local = 0; local < EXPERTS_EACH; ++local) {
    const int32_t expert = me->rank * EXPERTS_EACH + local, first = next;
    for (int32_t source = 0; source < me->ranks; ++source)
      for (int32_t token = 0; token < T; ++token)
        for (int32_t k = 0; k < K; ++k) {
          if (expert_of(me->ranks, source, token, k) != expert) continue;
          for (int32_t h = 0; h < H; ++h) {
            me->wrong += rows[next * H + h] != input(source, token, h);
            rows[next * H + h] *= (float)(1 + expert);
          }
          ++next;
        }
    me->wrong += counts[local] != next - first;
  }
  CHECK_CL(clEnqueueWriteBuffer(me->queue, dispatched->expand_x.memory, CL_TRUE, 0, bytes, rows, 0, NULL, NULL));
  return 1;
}

static int32_t dispatch(struct rank* me, moecl_moe_distribute_dispatch_v2_args* args) {
  float x[T * H];
  int32_t ids[T * K];
  uint64_t workspace_bytes = 0;
  for (int32_t i = 0; i < T * H; ++i) x[i] = input(me->rank, i / H, i % H);
  for (int32_t i = 0; i < T * K; ++i) ids[i] = expert_of(me->ranks, me->rank, i / K, i % K);
  memset(args, 0, sizeof(*args));
  args->size_bytes = sizeof(*args);
  CHECK(moecl_moe_distribute_dispatch_v2_defaults(args));
  args->x = matrix(me, MOECL_F32, T, H, x);
  args->expert_ids = matrix(me, MOECL_I32, T, K, ids);
  args->group_ep = "world";
  args->ep_world_size = me->ranks;
  args->ep_rank_id = me->rank;
  args->moe_expert_num = (int64_t)me->ranks * EXPERTS_EACH;
  CHECK(moecl_moe_distribute_dispatch_v2_plan(me->communicator, args, &workspace_bytes));
  give_memory(me, &args->expand_x);
  give_memory(me, &args->assist_info_for_combine);
  give_memory(me, &args->expert_token_nums);
  give_memory(me, &args->ep_recv_counts);
  const moecl_call call = call_with(me, workspace_bytes);
  CHECK(moecl_moe_distribute_dispatch_v2(me->communicator, args, &call, 0, NULL, NULL));
  CHECK(moecl_check_fault(me->stream, call.fault));
  clReleaseMemObject(call.workspace.memory);
  clReleaseMemObject(call.fault.memory);
  return 1;
}

static int32_t combine(struct rank* me, const moecl_moe_distribute_dispatch_v2_args* dispatched,
                       moecl_moe_distribute_combine_v2_args* args) {
  float weights[T * K];
  uint64_t workspace_bytes = 0;
  for (int32_t i = 0; i < T * K; ++i) weights[i] = weight_of(i / K, i % K);
  memset(args, 0, sizeof(*args));
  args->size_bytes = sizeof(*args);
  CHECK(moecl_moe_distribute_combine_v2_defaults(args));
  args->expand_x = dispatched->expand_x;
  args->expert_ids = dispatched->expert_ids;
  args->assist_info_for_combine = dispatched->assist_info_for_combine;
  args->ep_send_counts = dispatched->ep_recv_counts;
  args->expert_scales = matrix(me, MOECL_F32, T, K, weights);
  args->group_ep = "world";
  args->ep_world_size = me->ranks;
  args->ep_rank_id = me->rank;
  args->moe_expert_num = (int64_t)me->ranks * EXPERTS_EACH;
  CHECK(moecl_moe_distribute_combine_v2_plan(me->communicator, args, &workspace_bytes));
  give_memory(me, &args->out);
  const moecl_call call = call_with(me, workspace_bytes);
  CHECK(moecl_moe_distribute_combine_v2(me->communicator, args, &call, 0, NULL, NULL));
  CHECK(moecl_check_fault(me->stream, call.fault));
  clReleaseMemObject(call.workspace.memory);
  clReleaseMemObject(call.fault.memory);
  return 1;
}

/// Checks this rank's results, and then their sum over all ranks.
static int32_t check_outputs(struct rank* me, moecl_device_array out) {
  float got[T * H];
  for (int32_t summed = 0; summed < 2; ++summed) {
    if (summed) CHECK(moecl_all_reduce(me->communicator, out, MOECL_F32, T, H));
    CHECK_CL(clEnqueueReadBuffer(me->queue, out.memory, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL));
    for (int32_t i = 0; i < T * H; ++i) {
      float expected = summed ? 0 : expected_output(me->ranks, me->rank, i / H, i % H);
      for (int32_t rank = 0; rank < me->ranks && summed; ++rank)
        expected += expected_output(me->ranks, rank, i / H, i % H);
      me->wrong += got[i] != expected;
    }
  }
  return 1;
}

static void* run_rank(void* argument) {
  struct rank* me = argument;
  moecl_moe_distribute_dispatch_v2_args dispatched;
  moecl_moe_distribute_combine_v2_args combined;
  if (!dispatch(me, &dispatched)) return NULL;
  if (run_experts(me, &dispatched) && combine(me, &dispatched, &combined)) {
    const moecl_device_array out = {combined.out.memory, 0};
    me->ok = check_outputs(me, out);
    clReleaseMemObject(combined.expert_scales.memory);
    clReleaseMemObject(combined.out.memory);
  }
  clReleaseMemObject(dispatched.x.memory);
  clReleaseMemObject(dispatched.expert_ids.memory);
  clReleaseMemObject(dispatched.expand_x.memory);
  clReleaseMemObject(dispatched.assist_info_for_combine.memory);
  clReleaseMemObject(dispatched.expert_token_nums.memory);
  clReleaseMemObject(dispatched.ep_recv_counts.memory);
  return NULL;
}

static int32_t make_group(struct rank* of, const int32_t* devices, int32_t device_count, int32_t transport,
                          moecl_rank_group** out_group) {
  moecl_stream* streams[MOST_RANKS];
  moecl_rank_group_options options;
  memset(&options, 0, sizeof(options));
  options.size_bytes = sizeof(options);
  options.transport = transport;
  for (int32_t rank = 0; rank < of->ranks; ++rank) {
    struct rank* me = &of[rank];
    // Ranks of one device share its context.
    if (rank < device_count) {
      CHECK(moecl_context_create(devices[rank], NULL, &me->context));
    } else {
      me->context = of[rank % device_count].context;
    }
    CHECK(moecl_stream_create(me->context, 0, &me->stream));
    CHECK(moecl_stream_native(me->stream, &me->queue));
    streams[rank] = me->stream;
  }
  struct rank* me = of;
  CHECK(moecl_rank_group_create(streams, of->ranks, &options, out_group));
  for (int32_t rank = 0; rank < of->ranks; ++rank)
    CHECK(moecl_rank_group_communicator(*out_group, rank, &of[rank].communicator));
  return 1;
}

int32_t c_ranks_run(const int32_t* devices, int32_t device_count, int32_t ranks, int32_t transport,
                    int32_t* out_wrong) {
  struct rank of[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  moecl_rank_group* group = NULL;
  memset(of, 0, sizeof(of));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    of[rank].rank = rank;
    of[rank].ranks = ranks;
  }
  int32_t ok = ranks <= MOST_RANKS && make_group(of, devices, device_count, transport, &group);
  int32_t started = 0;
  while (ok && started < ranks && pthread_create(&threads[started], NULL, run_rank, &of[started]) == 0) ++started;
  ok = ok && started == ranks;
  if (!ok && group != NULL) moecl_rank_group_abort(group, "a thread could not be started");
  *out_wrong = 0;
  for (int32_t rank = 0; rank < started; ++rank) {
    pthread_join(threads[rank], NULL);
    ok = ok && of[rank].ok;
    *out_wrong += of[rank].wrong;
  }
  moecl_rank_group_destroy(group);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    moecl_communicator_destroy(of[rank].communicator);
    moecl_stream_destroy(of[rank].stream);
    if (rank < device_count) moecl_context_destroy(of[rank].context);
  }
  return ok;
}
