// An engine with its own OpenCL context. It frees all its own objects as soon as a call has failed. The layer of
// opencl_faults.cpp counts the objects that are still held when the process ends.
//
// usage: caller MODEL_DIR                one rank runs the layer of that directory
//        caller RANKS shared_context|staged   RANKS ranks exchange data
// Exit code 0 with the right result, 1 with a wrong one, 4 and a sentence on stderr after an error.
#define _POSIX_C_SOURCE 200112L
#include <moecl/rank_group.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, TOKENS = 3, VALUES = 1024 };

static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
static int told, wrong;

/// Reports the first error alone: others follow from it.
static int failed(const char* call, const char* why) {
  pthread_mutex_lock(&telling);
  if (!told++) fprintf(stderr, "moecl: %s: %s\n", call, why);
  pthread_mutex_unlock(&telling);
  return 0;
}
#define CHECK(call) \
  if ((call) != MOECL_OK) return failed(#call, moecl_last_error_message())
#define CHECK_CL(call) \
  if ((call) != CL_SUCCESS) return failed(#call, "the caller's own call failed")

static cl_mem memory_of(cl_context context, size_t bytes, const float* values) {
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (values != NULL ? CL_MEM_COPY_HOST_PTR : 0);
  const cl_mem memory = clCreateBuffer(context, flags, bytes, (void*)values, NULL);
  if (memory == NULL) failed("clCreateBuffer", "the caller's own call failed");
  return memory;
}
static void release(cl_mem memory) {
  if (memory != NULL) clReleaseMemObject(memory);
}

struct caller {
  cl_context context;
  cl_command_queue queues[MOST_RANKS];
  moecl_context* moecl;
  moecl_stream* streams[MOST_RANKS];
  int32_t ranks;
};

static int open_caller(struct caller* me) {
  cl_platform_id platforms[8], platform = NULL;
  cl_uint count = 0;
  cl_device_id device = NULL;
  CHECK_CL(clGetPlatformIDs(8, platforms, &count));
  for (cl_uint i = 0; i < count && platform == NULL; ++i) {
    char name[128] = "";
    CHECK_CL(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(name), name, NULL));
    if (strstr(name, "Portable") != NULL) platform = platforms[i];
  }
  CHECK_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
  cl_int status = CL_SUCCESS;
  me->context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  CHECK_CL(status);
  CHECK(moecl_context_wrap(me->context, NULL, &me->moecl));
  for (int32_t rank = 0; rank < me->ranks; ++rank) {
    me->queues[rank] = clCreateCommandQueue(me->context, device, 0, &status);
    CHECK_CL(status);
    CHECK(moecl_stream_wrap(me->moecl, me->queues[rank], &me->streams[rank]));
  }
  return 1;
}

static void close_caller(struct caller* me) {
  for (int32_t rank = 0; rank < me->ranks; ++rank) {
    moecl_stream_destroy(me->streams[rank]);
    if (me->queues[rank] != NULL) clReleaseCommandQueue(me->queues[rank]);
  }
  moecl_context_destroy(me->moecl);
  if (me->context != NULL) clReleaseContext(me->context);
}

/// Two passes over the same tokens give the same bits, and no NaN.
static int compare_passes(const struct caller* me, const moecl_layer* layer, moecl_forward_args* args, size_t bytes,
                          float* first, float* second) {
  float* const results[] = {first, second};
  for (int pass = 0; pass < 2; ++pass) {
    cl_event done = NULL;
    CHECK(moecl_layer_forward(layer, me->streams[0], args, 0, NULL, &done));
    const cl_int status =
        clEnqueueReadBuffer(me->queues[0], args->out.memory, CL_TRUE, 0, bytes, results[pass], 1, &done, NULL);
    clReleaseEvent(done);
    CHECK_CL(status);
    CHECK(moecl_stream_finish(me->streams[0]));
  }
  wrong = memcmp(first, second, bytes) != 0 || !isfinite(first[0]) || first[0] == -1.0F;
  return 1;
}

static int run_layer(const struct caller* me, const moecl_layer* layer) {
  moecl_layer_info info;
  memset(&info, 0, sizeof(info));
  info.size_bytes = sizeof(info);
  uint64_t workspace_bytes = 0;
  CHECK(moecl_layer_describe(layer, &info));
  CHECK(moecl_layer_workspace_bytes(layer, TOKENS, &workspace_bytes));
  const size_t count = (size_t)info.hidden * TOKENS, bytes = count * sizeof(float);
  float* const values = malloc(4 * bytes);
  for (size_t i = 0; i < count; ++i) values[i] = sinf((float)i);
  for (size_t i = count; i < 4 * count; ++i) values[i] = -1.0F;
  moecl_forward_args args;
  memset(&args, 0, sizeof(args));
  args.size_bytes = sizeof(args);
  args.tokens = TOKENS;
  args.x.memory = memory_of(me->context, bytes, values);
  args.out.memory = memory_of(me->context, bytes, values + count);
  args.workspace.memory = memory_of(me->context, workspace_bytes, NULL);
  const int ok = args.x.memory != NULL && args.out.memory != NULL && args.workspace.memory != NULL &&
                 compare_passes(me, layer, &args, bytes, values + 2 * count, values + 3 * count);
  release(args.x.memory);
  release(args.out.memory);
  release(args.workspace.memory);
  free(values);
  return ok;
}

static int load_and_run(const struct caller* me, const char* model_dir) {
  moecl_layer* layer = NULL;
  CHECK(moecl_layer_load(me->streams[0], model_dir, -1, NULL, &layer));
  const int ok = run_layer(me, layer);
  if (!ok) moecl_stream_finish(me->streams[0]);  // a layer's commands must have completed
  moecl_layer_destroy(layer);
  return ok;
}

struct rank {
  const struct caller* caller;
  moecl_rank_group* group;
  moecl_communicator* communicator;
  int32_t rank;
};

/// Gathers the values of all ranks (each rank's have its number added), then sums the result over the ranks.
static int exchange(const struct rank* me, cl_mem mine, cl_mem all, float* got) {
  const int32_t ranks = me->caller->ranks;
  const moecl_device_array send = {mine, 0}, recv = {all, 0};
  uint64_t bytes[MOST_RANKS];
  for (int32_t rank = 0; rank < ranks; ++rank) bytes[rank] = VALUES * sizeof(float);
  CHECK(moecl_all_gather(me->communicator, send, recv, bytes));
  CHECK(moecl_all_reduce(me->communicator, recv, MOECL_F32, ranks, VALUES));
  CHECK(moecl_stream_finish(me->caller->streams[me->rank]));
  char cause[256];
  CHECK(moecl_rank_group_failure(me->group, cause, sizeof(cause)));
  if (cause[0] != '\0') return failed("the group", cause);
  CHECK_CL(clEnqueueReadBuffer(me->caller->queues[me->rank], all, CL_TRUE, 0, (size_t)ranks * VALUES * sizeof(float),
                               got, 0, NULL, NULL));
  for (int32_t i = 0; i < ranks * VALUES; ++i)
    if (got[i] != (float)(ranks * (i / VALUES + 10 * (i % VALUES)))) wrong = 1;
  return 1;
}

/// Runs one rank. It frees its memory while the other ranks may still be in their calls.
static void* run_rank(void* argument) {
  const struct rank* const me = argument;
  float mine[VALUES], got[MOST_RANKS * VALUES];
  for (int32_t i = 0; i < VALUES; ++i) mine[i] = (float)(me->rank + 10 * i);
  const cl_mem send = memory_of(me->caller->context, sizeof(mine), mine);
  const cl_mem recv = memory_of(me->caller->context, sizeof(mine) * (size_t)me->caller->ranks, NULL);
  const int ok = send != NULL && recv != NULL && exchange(me, send, recv, got);
  if (!ok) moecl_rank_group_abort(me->group, "the caller has failed");  // the others would wait for it
  release(send);
  release(recv);
  return ok ? NULL : argument;
}

static int run_ranks(const struct caller* me, const char* transport) {
  moecl_rank_group_options options;
  memset(&options, 0, sizeof(options));
  options.size_bytes = sizeof(options);
  options.deadline_ms = 5000;
  options.transport = strcmp(transport, "staged") == 0 ? MOECL_TRANSPORT_STAGED : MOECL_TRANSPORT_SHARED_CONTEXT;
  moecl_rank_group* group = NULL;
  CHECK(moecl_rank_group_create(me->streams, me->ranks, &options, &group));
  struct rank ranks[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  int ok = 1;
  for (int32_t r = 0; r < me->ranks; ++r) {
    ranks[r].caller = me;
    ranks[r].group = group;
    ranks[r].rank = r;
    ranks[r].communicator = NULL;
    if (ok && moecl_rank_group_communicator(group, r, &ranks[r].communicator) != MOECL_OK)
      ok = failed("moecl_rank_group_communicator", moecl_last_error_message());
  }
  for (int32_t r = 0; ok && r < me->ranks; ++r) pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
  const int began = ok;
  for (int32_t r = 0; began && r < me->ranks; ++r) {
    void* outcome = NULL;
    pthread_join(threads[r], &outcome);
    ok = ok && outcome == NULL;
  }
  for (int32_t r = 0; r < me->ranks; ++r) moecl_communicator_destroy(ranks[r].communicator);
  moecl_rank_group_destroy(group);
  return ok;
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  struct caller me;
  memset(&me, 0, sizeof(me));
  me.ranks = count == 3 ? atoi(arguments[1]) : 1;
  const int ok = open_caller(&me) && (count == 3 ? run_ranks(&me, arguments[2]) : load_and_run(&me, arguments[1]));
  close_caller(&me);
  return !ok ? 4 : wrong;
}
