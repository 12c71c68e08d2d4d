#include <moecl/step.hpp>

#include <algorithm>
#include <numeric>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

std::vector<Agreed> agreed_about(const Step& step) {
  return {{"strategy", step.strategy},
          {"reduce_results", step.reduce_results},
          {"max_tokens_across_dp", step.max_tokens_across_dp},
          {"num_tokens_across_dp", step.num_tokens_across_dp},
          {"cu_tokens_across_dp", step.cu_tokens_across_dp},
          {"uniform_decode", step.uniform_decode},
          {"micro_batches", step.micro_batches}};
}

/// The caller's counts, from whichever of both lists is given; empty: none.
std::vector<std::int64_t> given_counts(const Step& step) {
  const std::vector<std::int64_t>& ends = step.cu_tokens_across_dp;
  require(ends.empty() || step.num_tokens_across_dp.empty(),
          "step: num_tokens_across_dp or cu_tokens_across_dp, not both");
  if (ends.empty()) return step.num_tokens_across_dp;
  std::vector<std::int64_t> counts(ends.size());
  std::adjacent_difference(ends.begin(), ends.end(), counts.begin());
  return counts;
}

void expect_possible(const Step& step, std::int64_t tokens) {
  require(!step.micro_batches || *step.micro_batches == 1 || *step.micro_batches == 2,
          "step: {} micro-batches, not 1 or 2", step.micro_batches.value_or(1));
  const TensorView& mask = step.finished;
  require(!mask.present() || (mask.rank == 1 && mask.shape[0] == tokens && size_bytes(mask.dtype) == 1),
          "step: finished: expected u8 or boolean [{}], got {}", tokens, mask);
}

}  // namespace

AgreedStep::AgreedStep(const ExpertRank& rank, const Step& step, std::int64_t tokens, std::vector<Agreed> also)
    : step_(step), rank_(rank.ep.rank()), tp_(rank.tp.size()) {
  rank.ep.together([&] {
    expect_possible(step, tokens);
    std::vector<Agreed> agreed = agreed_about(step);
    agreed.insert(agreed.end(), also.begin(), also.end());
    tokens_of_ranks_ = share_tokens("step", rank, tokens, std::move(agreed));
    const auto of_dp = [&](std::size_t d) { return tokens_of_ranks_[d * static_cast<std::size_t>(tp_)]; };
    const std::vector<std::int64_t> given = given_counts(step);
    const std::size_t groups = tokens_of_ranks_.size() / static_cast<std::size_t>(tp_);
    require(given.empty() || given.size() == groups, "step: tokens of {} dp ranks are given, there are {}",
            given.size(), groups);
    for (std::size_t d = 0; d < groups; ++d) {
      require(given.empty() || given[d] == of_dp(d), "step: dp rank {} has {} tokens, {} are given", d, of_dp(d),
              given.empty() ? 0 : given[d]);
      if (d < static_cast<std::size_t>(rank_ / tp_)) tokens_before_ += of_dp(d);
      max_tokens_ = std::max(max_tokens_, of_dp(d));
    }
    if (!step.max_tokens_across_dp) return;
    require(max_tokens_ <= *step.max_tokens_across_dp, "step: {} tokens are more than max_tokens_across_dp, {}",
            max_tokens_, *step.max_tokens_across_dp);
    max_tokens_ = *step.max_tokens_across_dp;
  });
}

void AgreedStep::expect_of(const ExpertRank& rank) const {
  require(tokens_of_ranks_.size() == static_cast<std::size_t>(rank.ep.size()) && tp_ == rank.tp.size() &&
              rank_ == rank.ep.rank(),
          "step: it was agreed by rank {} of {} with {} of a tp group, the layer's is rank {} of {} with {}", rank_,
          tokens_of_ranks_.size(), tp_, rank.ep.rank(), rank.ep.size(), rank.tp.size());
}

}  // namespace moecl
