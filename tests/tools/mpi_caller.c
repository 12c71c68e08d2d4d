// An engine that has initialised MPI itself. It joins over its own communicator, in which its processes count
// backwards, and counts how many duplicates of the communicator are left.
//
// usage: mpi_caller single|funneled|serialized COUNT...    for each process of the communicator, how many ranks it has
// Each process prints a line: its number, what became of it, and the duplicates.
#include <moecl/rank_group.h>

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 80 };

static int duplicates = 0;

static int count_copy(MPI_Comm of, int key, void* extra, void* value, void* out_value, int* out_flag) {
  (void)of, (void)key, (void)extra, (void)value, (void)out_value;
  *out_flag = 1;
  ++duplicates;
  return MPI_SUCCESS;
}
static int count_delete(MPI_Comm of, int key, void* value, void* extra) {
  (void)of, (void)key, (void)value, (void)extra;
  --duplicates;
  return MPI_SUCCESS;
}

struct member {
  moecl_rank_group* group;
  int32_t rank;
  int failed;
};

static void* meet(void* of) {
  struct member* const me = of;
  moecl_communicator* communicator = NULL;
  me->failed = moecl_rank_group_communicator(me->group, me->rank, &communicator) != MOECL_OK ||
               moecl_barrier(communicator) != MOECL_OK || moecl_communicator_wait(communicator) != MOECL_OK;
  moecl_communicator_destroy(communicator);
  return NULL;
}

/// The ranks meet at a barrier, each in its own thread. Returns how many failed.
static int all_meet(moecl_rank_group* group, const int32_t* ranks, int32_t count) {
  struct member members[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  int failed = 0;
  for (int32_t i = 0; i < count; ++i) {
    members[i] = (struct member){group, ranks[i], 1};
    if (pthread_create(&threads[i], NULL, meet, &members[i]) != 0) abort();
  }
  for (int32_t i = 0; i < count; ++i) {
    pthread_join(threads[i], NULL);
    failed += members[i].failed;
  }
  return failed;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int wanted = strcmp(argv[1], "single") == 0     ? MPI_THREAD_SINGLE
                     : strcmp(argv[1], "funneled") == 0 ? MPI_THREAD_FUNNELED
                                                        : MPI_THREAD_SERIALIZED;
  int provided = 0, rank = 0, process = 0, key = 0;
  MPI_Comm engine;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &engine);
  MPI_Comm_rank(engine, &process);
  MPI_Comm_create_keyval(count_copy, count_delete, &key, NULL);
  MPI_Comm_set_attr(engine, key, &duplicates);
  ++duplicates;  // the engine's communicator itself

  const int32_t count = atoi(argv[2 + process]);
  moecl_context* context = NULL;
  moecl_stream* streams[MOST_RANKS];
  if (count > MOST_RANKS || moecl_context_create_matching("Portable", "", NULL, &context) != MOECL_OK) abort();
  for (int32_t i = 0; i < count; ++i)
    if (moecl_stream_create(context, 0, &streams[i]) != MOECL_OK) abort();
  moecl_rank_group* group = NULL;
  const moecl_status status = moecl_rank_group_from_mpi_ranks(&engine, streams, count, NULL, &group);
  char said[512];
  if (status != MOECL_OK) {
    snprintf(said, sizeof(said), "refused with %d: %s", (int)status, moecl_last_error_message());
  } else {
    int32_t size = 0, local = 0, ranks[MOST_RANKS];
    moecl_rank_group_members(group, &size, NULL);
    moecl_rank_group_local(group, &local, ranks);
    moecl_transport_info info = {.size_bytes = sizeof(info)};
    moecl_rank_group_transport(group, 0, size - 1, &info);
    snprintf(said, sizeof(said), "%d ranks, %d from %d on, %d failed, transport %d", (int)size, (int)local,
             (int)ranks[0], all_meet(group, ranks, local), (int)info.transport);
  }
  const int joined = duplicates;
  moecl_rank_group_destroy(group);
  printf("process %d: %s; duplicates %d, then %d\n", process, said, joined - 1, duplicates - 1);
  for (int32_t i = 0; i < count; ++i) moecl_stream_destroy(streams[i]);
  moecl_context_destroy(context);
  MPI_Comm_free(&engine);
  MPI_Finalize();
  fflush(stdout);
  _exit(0);  // MPI itself leaks: no leak check
}
