#pragma once
#include <cstdint>

namespace moecl {

/// A position in a group: `rank` of `size`.
struct GroupPosition {
  std::int32_t size = 1, rank = 0;
};

/// How the ranks of a data-parallel x tensor-parallel grid share the MoE layers.
///
/// The MoE never mixes TP and EP: every rank flattens into one or the other. Flat rank = dp_rank * tp + tp_rank.
/// Source: vLLM's FusedMoEParallelConfig
struct ParallelConfig {
  GroupPosition tp;  ///< shards each expert's intermediate size
  GroupPosition dp;  ///< each has its own tokens
  GroupPosition ep;  ///< shards the experts
  bool use_ep = false;

  /// The view of one rank of a dp x tp grid.
  /// Errors: invalid_argument  a size is not positive or a rank is outside its size
  static ParallelConfig make(GroupPosition tp, GroupPosition dp, bool expert_parallel);
};

}  // namespace moecl
