#ifndef MOECL_MPI_PLUGIN_H
#define MOECL_MPI_PLUGIN_H
/* What moecl needs of MPI, as functions of a plugin that is built once for each MPI and loaded on use. No name of MPI
   appears here, since types differ between MPIs. Functions return 0, or an error of MPI. Calls come one at a time. */

#include <stdint.h>

#define MOECL_MPI_PLUGIN_VERSION 5

struct moecl_mpi {
  int version;      /* MOECL_MPI_PLUGIN_VERSION */
  const char* name; /* of the MPI that the plugin was built with */

  /* Duplicates *comm, an MPI_Comm. If comm is null, duplicates MPI_COMM_WORLD, and initialises MPI if nobody has. All
     processes call it.
     *thread_level: thread level of MPI, 0 to 3. Below 2, MPI_THREAD_SERIALIZED, nothing is duplicated */
  int (*open)(const void* comm, void** out_comm, int* process, int* processes, int* thread_level);
  /* Frees the communicator. Null: `open`, or another collective call, has not returned and never will. If `open`
     initialised MPI, MPI is finalized when the process ends, within the deadline. But if a process was lost (`whole` is
     0 then) or is late, this process ends with code 4, and the job with it. The job's launchers then have a quarter of
     the deadline to end. */
  void (*close)(void* comm, int whole, int deadline_ms);
  /* Gathers one number of each process. All processes call it. */
  int (*gather)(void* comm, int number, int* out_numbers);
  /* The first process on the node of each process. All processes call it.
     word  in, out: becomes the word of the first process on this node */
  int (*nodes)(void* comm, int* out_nodes, uint64_t* word);
  /* Begin to send or to receive. peer: number of a process */
  int (*send)(void* comm, const void* bytes, int count, int peer, int tag, void** out_request);
  int (*receive)(void* comm, void* bytes, int count, int peer, int tag, void** out_request);
  /* Sets *done to 1 if the request has completed. Then *count is the bytes received, and the request is freed. */
  int (*test)(void** request, int* done, int* count);
  /* Cancels a receive for which no message will come. */
  void (*cancel)(void** request);
  /* The text of an error. */
  void (*describe)(int error, char* text, int bytes);
};

/* The only symbol that the plugin exports. */
__attribute__((visibility("default"))) const struct moecl_mpi* moecl_mpi_plugin(void);

#endif
