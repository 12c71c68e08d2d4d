/* The MPI plugin: one source, built once for Open MPI and once for MPICH. */
#define _GNU_SOURCE /* usleep, dprintf */
#include "dispatch/processes/mpi_plugin.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/processes/launcher_end.h"

#ifdef OPEN_MPI
#define LIBRARY "Open MPI"
#else
#define LIBRARY "MPICH"
#endif

enum { aborted = 4 };

/* Who initialises MPI: other code, or moecl (under way, or done). */
enum { by_others, begins, begun };
static atomic_int initialised = by_others, ended = 0;
static int broken = 0, patience_ms = 0, world_rank = 0;

static void abort_job(void) {
  moecl_end_launcher(patience_ms / 4);
  /* MPICH: the message to its launcher that MPI_Abort sends only between the begin and the end of MPI. */
  const char* const launcher = getenv("PMI_FD");
  if (launcher != NULL)
    dprintf(atoi(launcher), "cmd=abort exitcode=%d\n", aborted);
  else if (initialised == begun)
    MPI_Abort(MPI_COMM_WORLD, aborted);
  fflush(NULL);
  _exit(aborted);
}

/* MPI_Finalize waits for a process that was lost. The first surviving process reports that and aborts the others. */
static void* end_late(void* unused) {
  for (int ms = 0; ms < patience_ms + 2000 * world_rank; ++ms)
    if (ended)
      return unused;
    else
      usleep(1000);
  fprintf(stderr, "moecl: %s has not ended within %d ms\n", LIBRARY, patience_ms);
  abort_job();
  return unused;
}

static void end_mpi(void) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  if (broken) {
    if (world_rank != 0) usleep(500000); /* ranks that know less wait for rank 0, which says why */
    abort_job();
  }
  pthread_t watch;
  const int watched = pthread_create(&watch, NULL, end_late, NULL) == 0;
  MPI_Finalize();
  ended = 1;
  if (watched) pthread_join(watch, NULL);
}

static int open_comm(const void* comm, void** out_comm, int* process, int* processes, int* thread_level) {
  int any = 0;
  int error = MPI_Initialized(&any);
  if (error == MPI_SUCCESS && !any) {
    if (comm != NULL) return MPI_ERR_COMM;
    initialised = begins;
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, thread_level);
    if (error == MPI_SUCCESS) {
      MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
      initialised = begun;
      atexit(end_mpi);
    }
  }
  int level = MPI_THREAD_SINGLE;
  if (error == MPI_SUCCESS) error = MPI_Query_thread(&level);
  *thread_level = level == MPI_THREAD_MULTIPLE     ? 3
                  : level == MPI_THREAD_SERIALIZED ? 2
                  : level == MPI_THREAD_FUNNELED   ? 1
                                                   : 0;
  if (error != MPI_SUCCESS || *thread_level < 2) return error;
  MPI_Comm* const own = malloc(sizeof *own);
  if (own == NULL) return MPI_ERR_NO_MEM;
  error = MPI_Comm_dup(comm != NULL ? *(const MPI_Comm*)comm : MPI_COMM_WORLD, own);
  if (error != MPI_SUCCESS) {
    free(own);
    return error;
  }
  MPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN);
  MPI_Comm_rank(*own, process);
  MPI_Comm_size(*own, processes);
  *out_comm = own;
  return MPI_SUCCESS;
}

static void close_comm(void* comm, int whole, int deadline_ms) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  patience_ms = deadline_ms;
  if (!whole) {
    broken = 1; /* MPI may still use the communicator */
    if (initialised == begins) atexit(end_mpi);
    return;
  }
  if (!finalized) MPI_Comm_free((MPI_Comm*)comm);
  free(comm);
}

static int gather(void* comm, int number, int* out_numbers) {
  return MPI_Allgather(&number, 1, MPI_INT, out_numbers, 1, MPI_INT, *(MPI_Comm*)comm);
}

static int nodes(void* comm, int* out_nodes, uint64_t* word) {
  MPI_Comm here;
  int first = 0;
  const MPI_Comm all = *(MPI_Comm*)comm;
  int error = MPI_Comm_rank(all, &first);
  if (error == MPI_SUCCESS) error = MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, first, MPI_INFO_NULL, &here);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Bcast(&first, 1, MPI_INT, 0, here);
  if (error == MPI_SUCCESS) error = MPI_Bcast(word, 1, MPI_UINT64_T, 0, here);
  MPI_Comm_free(&here);
  return error != MPI_SUCCESS ? error : gather(comm, first, out_nodes);
}

static int begin(void* comm, void* bytes, int count, int peer, int tag, void** out_request, int receives) {
  MPI_Request* const request = malloc(sizeof *request);
  if (request == NULL) return MPI_ERR_NO_MEM;
  const MPI_Comm on = *(MPI_Comm*)comm;
  const int error = receives ? MPI_Irecv(bytes, count, MPI_BYTE, peer, tag, on, request)
                             : MPI_Isend(bytes, count, MPI_BYTE, peer, tag, on, request);
  if (error != MPI_SUCCESS) {
    free(request);
    return error;
  }
  *out_request = request;
  return MPI_SUCCESS;
}

static int send_bytes(void* comm, const void* bytes, int count, int peer, int tag, void** out_request) {
  return begin(comm, (void*)bytes, count, peer, tag, out_request, 0);
}

static int receive_bytes(void* comm, void* bytes, int count, int peer, int tag, void** out_request) {
  return begin(comm, bytes, count, peer, tag, out_request, 1);
}

static int test_request(void** request, int* done, int* count) {
  MPI_Status status;
  const int error = MPI_Test(*request, done, &status);
  if (error == MPI_SUCCESS && !*done) return MPI_SUCCESS;
  *done = 1;
  if (error == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, count);
  free(*request);
  *request = NULL;
  return error;
}

static void cancel_request(void** request) {
  MPI_Request* const of = *request;
  if (of == NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) {
    MPI_Cancel(of);
    MPI_Request_free(of);
  }
  free(of);
  *request = NULL;
}

static void describe_error(int error, char* text, int bytes) {
  char all[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(error, all, &length);
  all[MPI_MAX_ERROR_STRING] = '\0';
  strncpy(text, all, (size_t)bytes - 1);
  text[bytes - 1] = '\0';
}

static const struct moecl_mpi functions = {MOECL_MPI_PLUGIN_VERSION,
                                           LIBRARY,
                                           open_comm,
                                           close_comm,
                                           gather,
                                           nodes,
                                           send_bytes,
                                           receive_bytes,
                                           test_request,
                                           cancel_request,
                                           describe_error};

const struct moecl_mpi* moecl_mpi_plugin(void) { return &functions; }
