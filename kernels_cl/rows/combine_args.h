#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long rows_first, rows_scale_first, slot_rows_first, slot_ends_first, weights_first, bias_first, bias_ids_first;
  long shared_first, shared_gate_first, residual_first, active_first, out_first;
  long rows_stride, weights_stride, bias_stride, bias_ids_stride;
  long shared_stride, shared_gate_stride, residual_stride, out_stride;
  long token_slots, k_slots;  // strides in slots: from token to token, and from k to k + 1 of a token
  int row_count, slot_count, top_k, hidden, bias_count, shared_token, shared_count, skip_zero_weights, pad;
  float shared_scale;
} combine_args;
KERNEL_ARGS(combine_args, 216);
