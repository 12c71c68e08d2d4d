// Finds where each token goes: the owners of its experts. One work-item per token.
#include "kernels_cl/ascend/expert_routes_args.h"
#include "kernels_cl/common/fault.clh"

// The number of true bytes of a mask.
inline int count_true(const __global uchar* mask, int n) {
  int sum = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    const uchar8 eight = vload8(0, mask + i) != (uchar8)(0) ? (uchar8)(1) : (uchar8)(0);
    const uchar4 four = eight.lo + eight.hi;
    const uchar2 two = four.lo + four.hi;
    sum += two.x + two.y;
  }
  for (; i < n; ++i) sum += mask[i] != 0;
  return sum;
}

__kernel void expert_routes_t0(const __global int* expert_ids, const __global uchar* mask,
                               const __global float* weights, __global int* owners, __global int* smooth_rows,
                               __global float* row_weights, __global int* special_rows, __global int* active,
                               __global int* fault, const expert_routes_args given) {
  const expert_routes_args args = given;
  const int token = get_global_id(0);
  if (token >= args.count) return;
  const long slot = (long)token * (args.top_k + args.shared_experts);
  expert_ids += args.expert_ids_first + (long)token * args.top_k;
  if (mask) mask += args.mask_first;
  if (weights) weights += args.weights_first + (long)token * args.top_k;
  owners += args.owners_first + slot;
  if (smooth_rows) smooth_rows += args.smooth_rows_first + slot;
  if (row_weights) row_weights += args.row_weights_first + slot;
  if (special_rows) special_rows += args.special_rows_first + slot;
  fault = fault_word(fault, args.fault_first);

  bool token_active = !mask || args.pair_mask;
  if (!token_active) {
    token_active = token < count_true(mask, args.count);
    if (token_active != (mask[token] != 0)) set_fault(fault, MASK_NOT_A_PREFIX, token, mask[token]);
  }
  bool some = false;
  for (int k = 0; k < args.top_k; ++k) {
    const int id = expert_ids[k];
    const __global uchar* pairs = args.pair_mask ? mask + (long)token * args.top_k : 0;
    bool taken = token_active && (!pairs || pairs[k] != 0);
    some |= taken;
    const int special = id - args.experts - args.zero_experts;  // counts copy, then constant experts, from 0
    if (taken && (id < 0 || special >= args.copy_experts + args.const_experts)) {
      set_fault(fault, EXPERT_ID_OUT_OF_RANGE, token * args.top_k + k, id);
      taken = false;
    }
    for (int before = 0; before < k && taken && id < args.experts; ++before)
      if (expert_ids[before] == id && (!pairs || pairs[before] != 0)) {
        set_fault(fault, EXPERT_REPEATED, token * args.top_k + k, id);
        taken = false;
      }
    const bool sent = taken && id < args.experts;
    owners[k] = sent ? args.shared_ranks + id : -1;
    if (smooth_rows) smooth_rows[k] = sent ? args.shared_experts + id : 0;
    if (row_weights) row_weights[k] = taken ? weights[k] : 0.0f;
    if (special_rows)
      special_rows[k] = !taken || sent || special < 0 ? -1
                        : special < args.copy_experts ? token
                                                      : args.count * (1 + special - args.copy_experts) + token;
  }
  for (int shared = 0; shared < args.shared_experts; ++shared) {
    const int k = args.top_k + shared, each = args.shared_ranks / args.shared_experts;
    owners[k] = some ? args.rank % each + shared * each : -1;
    if (smooth_rows) smooth_rows[k] = shared;
    if (row_weights) row_weights[k] = 1.0f;
    if (special_rows) special_rows[k] = -1;
  }
  if (active) active[args.active_first + token] = some;
}
