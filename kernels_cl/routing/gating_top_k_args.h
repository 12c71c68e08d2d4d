#pragma once
#include "kernels_cl/common/kernel_args.h"

// ScoreFunction, ScoreOrder, GroupScore
enum { SOFTMAX, SIGMOID, NO_FUNCTION, SQRT_SOFTPLUS, SPARSE_MIXER };
enum { BEFORE_TOP_K, AFTER_TOP_K };
enum { GROUP_MAX, GROUP_SUM_OF_TOP_2 };

// top_k: columns of ids. The last `shared` of them are shared experts, which are not chosen. team_words: local memory
// of a team of lanes, in words of 8 bytes.
typedef struct {
  long logits_first, selection_bias_first, finished_first, ids_first, weights_first, scores_first;
  long logits_stride, ids_stride, weights_stride, scores_stride;
  int experts, top_k, score, order, groups, kept_groups, group_score, renormalise, finished_id, team_words;
  float epsilon, minimum, scaling_factor, mixer_limit;
  int shared, pad;
} gating_top_k_args;
KERNEL_ARGS(gating_top_k_args, 144);

// wide: token ids have 64 bits.
typedef struct {
  gating_top_k_args rule;
  long experts_first, token_ids_first, fault_first, vocabulary;
  int wide, pad;
} gating_by_table_args;
KERNEL_ARGS(gating_by_table_args, 184);
