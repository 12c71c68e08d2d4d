// Finds the place of the expert of each routed slot. One work-item per slot.
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/routing/physical_experts_args.h"

__kernel void physical_experts_t0(const __global int* ids, const __global int* places, const __global int* replicas,
                                  const __global float* weights, __global int* physical, __global float* placed_weights,
                                  __global int* fault, const physical_experts_args given) {
  const physical_experts_args args = given;
  const int slot = get_global_id(0);
  if (slot >= args.count) return;
  ids += args.ids_first, replicas += args.replicas_first;
  const int id = ids[slot], exists = id >= 0 && id < args.experts;
  int place = -1, gone = 0;
  if (exists) {
    const uint hash = ((uint)args.first_token + (uint)(slot / args.top_k)) * 2654435769u;
    const int choices = min(replicas[id], args.most_replicas);
    if (choices > 0) place = places[args.places_first + (long)id * args.most_replicas + hash % (uint)choices];
    gone = choices <= 0 && id < args.expected;
    if (gone && args.refuses) set_fault(fault_word(fault, args.fault_first), EXPERT_GONE, slot, id);
  } else if (id != -1) {
    set_fault(fault_word(fault, args.fault_first), EXPERT_ID_OUT_OF_RANGE, slot, id);
  }
  physical[args.physical_first + slot] = place;
  if (!placed_weights) return;
  // The weights of a token's present experts are scaled up by the weights of those that are gone; the sum stays.
  const int first = slot / args.top_k * args.top_k;
  float all = 0, here = 0;
  weights += args.weights_first;
  for (int k = first; k < first + args.top_k; ++k) {
    const int other = ids[k];
    if (other < 0 || other >= args.experts) continue;
    all += weights[k];
    if (replicas[other] > 0 || other >= args.expected) here += weights[k];
  }
  const float weight = weights[slot];
  placed_weights[args.placed_weights_first + slot] = gone                       ? 0
                                                     : here == all || here == 0 ? weight
                                                                                : weight * (all / here);
}
