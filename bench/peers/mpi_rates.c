/* The raw loop of MPI beside moecl_process_rates: alltoallv of host memory. mpicc -O2 mpi_rates.c && mpirun -n 2
 * ./a.out */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) printf("%9s  %12s  %16s\n", "bytes", "us alltoallv", "GB/s of a rank");
  for (long bytes = 1 << 10; bytes <= 32 << 20; bytes *= bytes < (64 << 10) ? 8 : 4) {
    char *send = malloc((size_t)bytes * size), *recv = malloc((size_t)bytes * size);
    int* counts = malloc(sizeof(int) * (size_t)size);
    int* offsets = malloc(sizeof(int) * (size_t)size);
    memset(send, 1, (size_t)bytes * size);
    memset(recv, 1, (size_t)bytes * size);
    for (int r = 0; r < size; ++r) counts[r] = r == rank ? 0 : (int)bytes, offsets[r] = (int)(r * bytes);
    double times[301];
    const int count = bytes >= (1 << 20) ? 21 : 301;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
      const double begin = MPI_Wtime();
      MPI_Alltoallv(send, counts, offsets, MPI_BYTE, recv, counts, offsets, MPI_BYTE, MPI_COMM_WORLD);
      times[i] = MPI_Wtime() - begin;
    }
    qsort(times, (size_t)count, sizeof(double), by_value);
    if (rank == 0)
      printf("%9ld  %12.1f  %16.2f\n", bytes, times[count / 2] * 1e6,
             (double)bytes * (size - 1) / times[count / 2] / 1e9);
    free(send), free(recv), free(counts), free(offsets);
  }
  MPI_Finalize();
  return 0;
}
