#pragma once
#include "kernels_cl/common/kernel_args.h"

// Experts [first_expert, first_expert + experts) of a product may take slots [first_slot, first_slot + slot_count).
// Priorities of policies compare as ints.
typedef struct {
  long row_ends_first, slots_first, holders_first, priorities_first, fetches_first, counters_first, awaited_first;
  int first_expert, experts, slot_count, policy;  // policy: SLOTS_LRU, SLOTS_LEAST_STALE, SLOTS_STATIC
  float fading;                                   // of what a use is worth, a pass later
  int new_pass;                                   // 0: other experts of the same pass came before
  int first_slot;
  int foreseen;  // by a prefetch: priorities stay
} expert_slots_claim_args;
KERNEL_ARGS(expert_slots_claim_args, 88);

typedef struct {
  long from_first, to_first, fetches_first;  // `from`, `to`: in units
  long units;                                // of an expert
} expert_slots_fetch_args;
KERNEL_ARGS(expert_slots_fetch_args, 32);

#define SLOTS_LRU 0
#define SLOTS_LEAST_STALE 1
#define SLOTS_STATIC 2
