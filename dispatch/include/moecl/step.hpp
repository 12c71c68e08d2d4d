#pragma once
#include <moecl/strategy.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace moecl {

/// How a pass over ranks goes. All of them say alike what stands here, but for the mask.
struct Step {
  /// Unset: the plan's, or what its rules choose. Another one runs over the same weights: decoding by mc2 and prefill
  /// by all2all_v, for instance.
  std::optional<StrategyKind> strategy = {};
  /// False: what the ranks of a tp group get are parts of `out`, `routed_out` and `shared_out`: added up they are what
  /// each would get. Nothing travels within the group for them. Source: reduce_results of vLLM
  bool reduce_results = true;
  /// The most tokens that a dp rank brings, at least as many as one does: what memory, windows and rules go by, so that
  /// steps of the same bound have the same sizes. Unset: what the rank that has most brings
  std::optional<std::int64_t> max_tokens_across_dp = {};
  /// Optional metadata of the caller: tokens of each dp rank, rows of padding included; they must be what ranks bring.
  /// Source: DPMetadata of vLLM
  std::vector<std::int64_t> num_tokens_across_dp = {};
  /// The same as cumulative ends.
  std::vector<std::int64_t> cu_tokens_across_dp = {};
  /// Every request brings as many tokens: the thresholds of micro-batches are those of decoding. Source: vLLM
  bool uniform_decode = false;
  /// 1 or 2. Unset: as the plan's thresholds say
  std::optional<std::int32_t> micro_batches = {};
  /// This rank's, where a pass brings none. Shape: [T] u8 or boolean: tokens with another value than 0 take no expert,
  /// such as rows of padding
  TensorView finished = {};
};

/// A step that all ranks have agreed about, for passes of any number of layers of theirs. Such a pass asks no rank
/// about it again: where kernels of all ranks wait for each other, host threads do not meet at all.
///
/// The ranks then make the same passes in the same order. Nobody sees before it is enqueued that one of them does not.
class AgreedStep {
 public:
  /// By all ranks. One meeting of their host threads; no device work.
  /// @param rank    As that of the layers; ExpertRank::with_own_tokens where their plan has replace_allreduce
  /// @param tokens  T of this rank
  /// @param also    what else they are to bring alike
  /// Errors: invalid_argument  on every rank: the first thing that differs, counts that are not what ranks bring, more
  ///         tokens than max_tokens_across_dp; a mask that is not of T tokens
  AgreedStep(const ExpertRank& rank, const Step& step, std::int64_t tokens, std::vector<Agreed> also = {});

  const Step& step() const noexcept { return step_; }
  /// Of each rank of ExpertRank::ep; the same for those of a tp group.
  const std::vector<std::int64_t>& tokens_of_ranks() const noexcept { return tokens_of_ranks_; }
  /// Of this rank.
  std::int64_t tokens() const noexcept { return tokens_of_ranks_[static_cast<std::size_t>(rank_)]; }
  /// Of the rank that has most, or the bound.
  std::int64_t max_tokens() const noexcept { return max_tokens_; }
  /// Of the dp ranks before this one.
  std::int64_t tokens_before() const noexcept { return tokens_before_; }
  /// Errors: invalid_argument  the step is of another number of ranks, tp ranks or place among them
  void expect_of(const ExpertRank& rank) const;

 private:
  Step step_;
  std::vector<std::int64_t> tokens_of_ranks_;
  std::int32_t rank_, tp_;
  std::int64_t max_tokens_ = 0, tokens_before_ = 0;
};

}  // namespace moecl
