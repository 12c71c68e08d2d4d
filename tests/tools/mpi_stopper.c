// A library to preload. It stops a process of MPI as MPI begins or ends.
//
// MOECL_TEST_STOPPED  the number of the process, and "begins" or "ends": 1:begins
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int PMPI_Finalize(void);

static void stop_if(const char* what) {
  const char* process = getenv("OMPI_COMM_WORLD_RANK");
  if (process == NULL) process = getenv("PMI_RANK");
  char of_this[64];
  snprintf(of_this, sizeof(of_this), "%s:%s", process != NULL ? process : "none", what);
  const char* const stopped = getenv("MOECL_TEST_STOPPED");
  if (stopped != NULL && strcmp(stopped, of_this) == 0) raise(SIGSTOP);
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  stop_if("begins");
  return PMPI_Init_thread(argc, argv, required, provided);
}
int MPI_Finalize(void) {
  stop_if("ends");
  return PMPI_Finalize();
}
