#pragma once
#include "kernels_cl/common/kernel_args.h"

// Experts [first_expert, first_expert + experts) of a product may take slots [first_slot, first_slot + slot_count).
// Priorities compare as ints under every policy.
typedef struct {
  long row_ends_first, slots_first, holders_first, priorities_first, fetches_first, counters_first, awaited_first;
  int first_expert, experts, slot_count, policy;  // policy: SLOTS_LRU, SLOTS_LEAST_STALE, SLOTS_STATIC
  float fading;                                   // factor on the worth of a use, once per later pass
  int new_pass;                                   // 0: a claim for other experts of the same pass came before
  int first_slot;
  int foreseen;  // 1: the claim is a prefetch, and priorities stay
} expert_slots_claim_args;
KERNEL_ARGS(expert_slots_claim_args, 88);

typedef struct {
  long from_first, to_first, fetches_first;  // from_first, to_first: in units
  long units;                                // units of an expert
} expert_slots_fetch_args;
KERNEL_ARGS(expert_slots_fetch_args, 32);

#define SLOTS_LRU 0
#define SLOTS_LEAST_STALE 1
#define SLOTS_STATIC 2
