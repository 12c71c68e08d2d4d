#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long ids_first, places_first, replicas_first, physical_first, fault_first;
  int count, top_k, experts, most_replicas, first_token, pad;
} physical_experts_args;
KERNEL_ARGS(physical_experts_args, 64);
