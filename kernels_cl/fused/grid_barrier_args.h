#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { MEETINGS = 16 };  // of the work-groups of a launch, at most

// words: one for each work-group that is awaited. stamp: of the meeting before the first.
typedef struct {
  long words_first, stamp;
  int patience;  // looks at a word until its work-group is late
  int pad;
} grid_barrier_args;
KERNEL_ARGS(grid_barrier_args, 24);
