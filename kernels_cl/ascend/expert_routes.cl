// Routes of tokens: one work-item a token.
#include "kernels_cl/common/fault.clh"

#define AT(p, first) ((p) ? (p) + (first) : (p))

// How many bytes of a mask are true.
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

__kernel void expert_routes_t0(const __global int* expert_ids, ulong ids_first, const __global uchar* mask,
                               ulong mask_first, const __global float* weights, ulong weights_first,
                               __global int* owners, ulong owners_first, __global int* smooth_rows, ulong smooth_first,
                               __global float* row_weights, ulong row_weights_first, __global int* special_rows,
                               ulong special_first, __global int* active, ulong active_first, __global int* fault,
                               ulong fault_first, int tokens, int top_k, int pair_mask, int experts, int zero_experts,
                               int copy_experts, int const_experts, int shared_experts, int shared_ranks, int rank) {
  const int token = get_global_id(0);
  if (token >= tokens) return;
  const long slot = (long)token * (top_k + shared_experts);
  expert_ids += ids_first + (long)token * top_k;
  mask = AT(mask, mask_first);
  weights = AT(weights, weights_first + (long)token * top_k);
  owners += owners_first + slot;
  smooth_rows = AT(smooth_rows, smooth_first + slot);
  row_weights = AT(row_weights, row_weights_first + slot);
  special_rows = AT(special_rows, special_first + slot);
  fault = AT(fault, fault_first);

  bool token_active = !mask || pair_mask;
  if (!token_active) {
    token_active = token < count_true(mask, tokens);
    if (token_active != (mask[token] != 0)) set_fault(fault, MASK_NOT_A_PREFIX, token, mask[token]);
  }
  bool some = false;
  for (int k = 0; k < top_k; ++k) {
    const int id = expert_ids[k];
    const __global uchar* pairs = pair_mask ? mask + (long)token * top_k : 0;
    bool taken = token_active && (!pairs || pairs[k] != 0);
    some |= taken;
    const int special = id - experts - zero_experts;  // of copy and constant experts, from 0
    if (taken && (id < 0 || special >= copy_experts + const_experts)) {
      set_fault(fault, EXPERT_ID_OUT_OF_RANGE, token * top_k + k, id);
      taken = false;
    }
    for (int before = 0; before < k && taken && id < experts; ++before)
      if (expert_ids[before] == id && (!pairs || pairs[before] != 0)) {
        set_fault(fault, EXPERT_REPEATED, token * top_k + k, id);
        taken = false;
      }
    const bool sent = taken && id < experts;
    owners[k] = sent ? shared_ranks + id : -1;
    if (smooth_rows) smooth_rows[k] = sent ? shared_experts + id : 0;
    if (row_weights) row_weights[k] = taken ? weights[k] : 0.0f;
    if (special_rows)
      special_rows[k] = !taken || sent || special < 0 ? -1
                        : special < copy_experts      ? token
                                                      : tokens * (1 + special - copy_experts) + token;
  }
  for (int shared = 0; shared < shared_experts; ++shared) {
    const int k = top_k + shared, each = shared_ranks / shared_experts;
    owners[k] = some ? rank % each + shared * each : -1;
    if (smooth_rows) smooth_rows[k] = shared;
    if (row_weights) row_weights[k] = 1.0f;
    if (special_rows) special_rows[k] = -1;
  }
  if (active) active[active_first + token] = some;
}
