#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long ids_first, places_first, replicas_first, weights_first, physical_first, placed_weights_first, fault_first;
  int count, top_k, experts, most_replicas, first_token;
  int expected, refuses;  // experts that should have places; whether the choice of one without is a fault
  int pad;
} physical_experts_args;
KERNEL_ARGS(physical_experts_args, 88);
