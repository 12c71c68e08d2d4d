#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { STEP_SIGNAL = 1 << 16 };  // what a step adds to a signal

// Arguments common to all kernels that put: the windows, and rows of `row_bytes` bytes with `scale_bytes` bytes of
// scales. An access copies `row_unit` or `scale_unit` bytes. A row is divided into `parts` parts.
typedef struct {
  long addresses_first, late_first, fault_first;
  long patience;            // polls of a signal at most; 0: no wait
  long codes_at, scale_at;  // byte offsets in a window
  int ranks, rank, capacity, top_k, step;
  int row_bytes, row_unit, scale_bytes, scale_unit, parts;
} window_put_args;
KERNEL_ARGS(window_put_args, 88);

typedef struct {
  window_put_args put;
  long ids_first, weights_first, codes_first, scale_first, return_rows_first;
  long ids_at, weights_at;  // byte offsets in a window
  int tokens, first_expert, experts, sums;
} window_put_dispatch_args;
KERNEL_ARGS(window_put_dispatch_args, 160);

typedef struct {
  window_put_args put;
  long slot_rows_first, codes_first, scale_first;
  int of_tokens, pad;
} window_put_combine_args;
KERNEL_ARGS(window_put_combine_args, 120);

typedef struct {
  window_put_args put;
  long slot_rows_first, weights_first, rows_first;
} window_put_sum_args;
KERNEL_ARGS(window_put_sum_args, 112);

typedef struct {
  long memory_first, addresses_first;
  int rank, pad;
} window_put_address_args;
KERNEL_ARGS(window_put_address_args, 24);
