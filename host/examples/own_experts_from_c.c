// The caller's own experts between dispatch and combine, with each strategy. The two ranks are threads of one process.
#define CL_TARGET_OPENCL_VERSION 120
#include <moecl/token_dispatcher.h>

#include <CL/cl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
enum { R = 2, T = 3, K = 2, H = 4, EXPERTS = 5, MOST = R * T * K };
static moecl_communicator* ranks[R];
static cl_command_queue queue[R];
static cl_context cl;
#define CHECK(call) ((call) == 0 ? (void)0 : exit((puts(#call ": "), puts(moecl_last_error_message()), 1)))
static moecl_device_array memory(size_t bytes, void* data) {  // kept to the end
  return (moecl_device_array){clCreateBuffer(cl, CL_MEM_COPY_HOST_PTR, bytes, data, NULL), 0};
}
static void fetch(int rank, moecl_device_array from, int64_t elements, void* to) {
  CHECK(clEnqueueReadBuffer(queue[rank], from.memory, 1, from.offset_bytes, 4 * (size_t)elements, to, 0, 0, 0));
}
static void* run(void* mine) {
  const int me = mine == &ranks[1];
  float x[T * H], rows[MOST * H], results[MOST * H] = {0};
  int ids[T * K], ends[EXPERTS], index[MOST];
  moecl_token_dispatcher_options how = {.size_bytes = sizeof(how), .hidden = H, .experts = EXPERTS, .top_k = K};
  for (how.strategy = MOECL_STRATEGY_MC2; how.strategy <= MOECL_STRATEGY_MULTICAST; ++how.strategy) {
    for (int i = 0; i < T * H; ++i) x[i] = (float)(100 * me + i), ids[i % (T * K)] = (me + i) % EXPERTS;
    moecl_dispatch_args tokens = {.size_bytes = sizeof(tokens), .tokens = T, .ids = memory(sizeof(ids), ids)};
    tokens.x = memory(sizeof(x), x);
    moecl_routed_rows routed = {.size_bytes = sizeof(routed)};
    moecl_token_dispatcher* dispatcher = NULL;
    CHECK(moecl_token_dispatcher_create(ranks[me], &how, &dispatcher));
    CHECK(moecl_token_dispatch(dispatcher, &tokens, &routed));
    fetch(me, routed.x, routed.source_rows * H, rows);
    fetch(me, routed.index, routed.rows, index);
    fetch(me, routed.row_ends, routed.local_experts, ends);
    for (int e = 0, i = 0; e < routed.local_experts; ++e)  // expert e multiplies by e + 1
      for (; i < ends[e] * H; ++i)
        results[i] = rows[index[i / H] / routed.index_divisor * H + i % H] * (float)(routed.first_expert + e + 1);
    CHECK(moecl_token_combine(dispatcher, memory(sizeof(results), results), tokens.x));
    fetch(me, tokens.x, T * H, x);
    for (int i = 0, t = 0; i < T * H; t = ++i / H)
      CHECK(x[i] != (float)((100 * me + i) * (ids[t * K] + ids[t * K + 1] + 2)));
    CHECK(moecl_token_dispatcher_destroy(dispatcher));
  }
  return NULL;
}
int main(void) {
  moecl_context* context = NULL;
  moecl_stream* on[R];
  moecl_rank_group* group = NULL;
  pthread_t other;
  CHECK(moecl_context_create_matching(NULL, NULL, NULL, &context) || moecl_context_native(context, &cl));
  for (int r = 0; r < R; ++r) CHECK(moecl_stream_create(context, 0, on + r) || moecl_stream_native(on[r], queue + r));
  CHECK(moecl_rank_group_create(on, R, NULL, &group));
  for (int r = 0; r < R; ++r) CHECK(moecl_rank_group_communicator(group, r, &ranks[r]));
  CHECK(pthread_create(&other, NULL, run, &ranks[1]));
  run(&ranks[0]);
  return pthread_join(other, NULL);
}
