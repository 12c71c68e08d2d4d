#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { GROUP_LIST_CUMSUM, GROUP_LIST_COUNTS, GROUP_LIST_PAIRS };  // Kind

typedef struct {
  long list_first, row_ends_first, fault_first;
  int wide, kind, entries, experts, rows, all_rows, most, pad;  // wide: the list is i64; most: rows of a group
} group_list_read_args;
KERNEL_ARGS(group_list_read_args, 56);

typedef struct {
  long source_first, list_first;
  int wide, kind, entries, experts, first_expert, cumulative;
} group_list_write_args;
KERNEL_ARGS(group_list_write_args, 40);
