#pragma once
#include <moecl/strategy.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace moecl {

/// Options of a pass over ranks. All ranks must give the same, except for `finished`.
struct Step {
  /// Unset: the plan's strategy, or the choice of its rules. Any strategy runs over the same weights, for example mc2
  /// for decoding and all2all_v for prefill.
  std::optional<StrategyKind> strategy = {};
  /// False: each rank of a tp group gets a part of `out`, `routed_out` and `shared_out`. The parts of the group add up
  /// to the result. The group exchanges nothing to reduce them. Source: reduce_results of vLLM
  bool reduce_results = true;
  /// Upper bound of the tokens of any dp rank. Memory, windows and rules depend on this bound, so steps with the same
  /// bound have the same sizes. Unset: the tokens of the rank that brings most
  std::optional<std::int64_t> max_tokens_across_dp = {};
  /// Optional: tokens of each dp rank as the caller knows them, rows of padding included. They must be the tokens that
  /// the ranks bring. Source: DPMetadata of vLLM
  std::vector<std::int64_t> num_tokens_across_dp = {};
  /// The same as cumulative ends. At most one of the two lists may be given.
  std::vector<std::int64_t> cu_tokens_across_dp = {};
  /// Every request brings the same number of tokens: micro-batches use the thresholds of decoding. Source: vLLM
  bool uniform_decode = false;
  /// 1 or 2. Unset: decided by the plan's thresholds
  std::optional<std::int32_t> micro_batches = {};
  /// Mask of this rank's tokens, used where a pass brings no mask of its own. Shape: [T] u8 or boolean. A token with a
  /// value other than 0 takes no expert, for example a row of padding
  TensorView finished = {};
};

/// A step that all ranks have agreed about, for passes of any number of their layers. Such a pass needs no agreement of
/// its own. Where kernels of all ranks wait for each other, host threads do not meet at all.
///
/// The ranks must then make the same passes in the same order. A difference is not detected before commands are
/// enqueued.
class AgreedStep {
 public:
  /// Collective: all ranks call it. One meeting of their host threads; no device work.
  /// @param rank    As that of the layers; ExpertRank::with_own_tokens where their plan has replace_allreduce
  /// @param tokens  T of this rank
  /// @param also    Further values that must be equal on all ranks
  /// Errors: invalid_argument  on every rank: the first value that differs, counts that are not what ranks bring, more
  ///         tokens than max_tokens_across_dp; a mask that is not of T tokens
  AgreedStep(const ExpertRank& rank, const Step& step, std::int64_t tokens, std::vector<Agreed> also = {});

  const Step& step() const noexcept { return step_; }
  /// Tokens of each rank of ExpertRank::ep; ranks of a tp group have the same number.
  const std::vector<std::int64_t>& tokens_of_ranks() const noexcept { return tokens_of_ranks_; }
  /// Tokens of this rank.
  std::int64_t tokens() const noexcept { return tokens_of_ranks_[static_cast<std::size_t>(rank_)]; }
  /// max_tokens_across_dp if it is set, otherwise tokens of the rank that has most.
  std::int64_t max_tokens() const noexcept { return max_tokens_; }
  /// Tokens of all dp ranks before this one.
  std::int64_t tokens_before() const noexcept { return tokens_before_; }
  /// Errors: invalid_argument  the step was agreed with another number of ranks, size of tp groups or rank number
  void expect_of(const ExpertRank& rank) const;

 private:
  Step step_;
  std::vector<std::int64_t> tokens_of_ranks_;
  std::int32_t rank_, tp_;
  std::int64_t max_tokens_ = 0, tokens_before_ = 0;
};

}  // namespace moecl
