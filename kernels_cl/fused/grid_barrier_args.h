#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { MEETINGS = 16 };  // most meetings of a launch's work-groups

// words: one for each work-group that is awaited. stamp: the one before the first meeting's.
typedef struct {
  long words_first, stamp;
  int patience;  // polls of a word until its work-group is late
  int pad;
} grid_barrier_args;
KERNEL_ARGS(grid_barrier_args, 24);
