// Where the experts of routed slots stand: one work-item a slot.
#include "kernels_cl/common/fault.clh"

#define AT(p, first) ((p) ? (p) + (first) : (p))

__kernel void physical_experts_t0(const __global int* ids, ulong ids_first, const __global int* places, ulong places_first,
                                  const __global int* replicas, ulong replicas_first, __global int* physical,
                                  ulong physical_first, __global int* fault, ulong fault_first, int count, int top_k,
                                  int experts, int most_replicas, uint first_token) {
  const int slot = get_global_id(0);
  if (slot >= count) return;
  const int id = ids[ids_first + slot];
  int place = -1;
  if (id >= 0 && id < experts) {
    const uint hash = (first_token + (uint)(slot / top_k)) * 2654435769u;
    const int choices = min(replicas[replicas_first + id], most_replicas);
    if (choices > 0) place = places[places_first + (long)id * most_replicas + hash % (uint)choices];
  } else if (id != -1) {
    set_fault(AT(fault, fault_first), EXPERT_ID_OUT_OF_RANGE, slot, id);
  }
  physical[physical_first + slot] = place;
}
