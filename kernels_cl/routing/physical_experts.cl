// Where the experts of routed slots stand: one work-item a slot.
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/routing/physical_experts_args.h"

__kernel void physical_experts_t0(const __global int* ids, const __global int* places, const __global int* replicas,
                                  __global int* physical, __global int* fault, const physical_experts_args given) {
  const physical_experts_args args = given;
  const int slot = get_global_id(0);
  if (slot >= args.count) return;
  const int id = ids[args.ids_first + slot];
  int place = -1;
  if (id >= 0 && id < args.experts) {
    const uint hash = ((uint)args.first_token + (uint)(slot / args.top_k)) * 2654435769u;
    const int choices = min(replicas[args.replicas_first + id], args.most_replicas);
    if (choices > 0) place = places[args.places_first + (long)id * args.most_replicas + hash % (uint)choices];
  } else if (id != -1) {
    set_fault(fault_word(fault, args.fault_first), EXPERT_ID_OUT_OF_RANGE, slot, id);
  }
  physical[args.physical_first + slot] = place;
}
