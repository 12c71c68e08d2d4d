#ifndef MOECL_MPI_PLUGIN_H
#define MOECL_MPI_PLUGIN_H
/* What moecl needs of MPI, as functions of a library that is built once for each MPI and loaded on use. No name of MPI
   stands here, since its types differ. Functions give 0, or an error of MPI. Calls come one at a time. */

#include <stdint.h>

#define MOECL_MPI_PLUGIN_VERSION 5

struct moecl_mpi {
  int version;      /* MOECL_MPI_PLUGIN_VERSION */
  const char* name; /* of the MPI that it was built with */

  /* Duplicates *comm, an MPI_Comm, or MPI_COMM_WORLD where that is null: then it initialises MPI if nobody has. All of
     them call it.
     *thread_level: what MPI was initialised with, 0 to 3; less than 2, MPI_THREAD_SERIALIZED: nothing is duplicated */
  int (*open)(const void* comm, void** out_comm, int* process, int* processes, int* thread_level);
  /* Frees the communicator; null: `open`, or another call of all, has not returned and never will. Where `open`
     initialises MPI, it is finalized when the process ends, within the deadline. But if any was lost, `whole` is 0
     then, or is late, the process ends with code 4 and the job with it, whose launchers have to end within a quarter of
     it. */
  void (*close)(void* comm, int whole, int deadline_ms);
  /* A number of each process. All of them call it. */
  int (*gather)(void* comm, int number, int* out_numbers);
  /* The first process on the node of each. All of them call it.
     word  in, out: becomes that of the first process on this node */
  int (*nodes)(void* comm, int* out_nodes, uint64_t* word);
  /* Begins to send or receive. peer: a process */
  int (*send)(void* comm, const void* bytes, int count, int peer, int tag, void** out_request);
  int (*receive)(void* comm, void* bytes, int count, int peer, int tag, void** out_request);
  /* Whether it has ended: then *done is 1, *count what was received, and the request is gone. */
  int (*test)(void** request, int* done, int* count);
  /* Of a receive that nothing will come for. */
  void (*cancel)(void** request);
  /* What an error means. */
  void (*describe)(int error, char* text, int bytes);
};

/* The only name that the plugin exports. */
__attribute__((visibility("default"))) const struct moecl_mpi* moecl_mpi_plugin(void);

#endif
