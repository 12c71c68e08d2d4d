#pragma once
// A layer over the ranks of a group, on one of them: what it keeps between passes, and how a pass is cut.
#include <moecl/parallel_layer.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "dispatch/step_pool.hpp"
#include "dispatch/strategies/gathered_choices.hpp"
#include "host/layer/expert_pass.hpp"
#include "host/layer/layer_pass.hpp"
#include "host/layer/rank_weights.hpp"

namespace moecl {

/// What prefetches go through, on a queue of their own.
struct ParallelLayer::Ahead {
  ExpertRank rank;
  std::int64_t most_rows = 0;  ///< more fit the slots of no rank; 0: no rank has a budget
  StepMemory memory;
  LayerPlans plans;
  GatheredChoices choices;

  /// By all ranks.
  Ahead(const ExpertRank& of, std::int32_t top_k, const Experts& experts)
      : rank(of.beside()), choices(rank, top_k, memory) {
    for (const auto& theirs : rank.ep.share("prefetch", {experts.limited() ? experts.resident() : 0}))
      most_rows = std::max(most_rows, theirs.front());
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  /// What is under way has its memory here.
  ~Ahead() {
    try {
      rank.ep.stream().finish();
    } catch (const Error&) {  // of a device that failed nothing is
    }
  }
};

/// A chunk of a pass, or a micro-batch of a chunk.
struct TokenBatch {
  Step step = {};                                  ///< with the strategy that was chosen, without counts
  std::int64_t first_token = 0;                    ///< as in LayerPass::Part
  bool first = true;                               ///< the same: no other part of the call came before
  std::vector<std::int64_t> tokens_of_ranks = {};  ///< of this batch
  std::int64_t max_tokens = 0;                     ///< on any rank; also where the step bounds them

  /// Of all ranks, those of a tp group once; of a bounded step as many as there can be.
  std::int64_t tokens_of_all(std::int64_t tp) const {
    const auto ranks = static_cast<std::int64_t>(tokens_of_ranks.size()) / tp;
    return step.max_tokens_across_dp ? max_tokens * ranks : tokens_brought(tp);
  }
  /// Those that are there.
  std::int64_t tokens_brought(std::int64_t tp) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), std::int64_t{0}) / tp;
  }

  /// Becomes one of `parts` of a batch, of the tokens of rank r.
  void become_part(const TokenBatch& of, std::int32_t parts, std::int32_t index, std::int32_t r) {
    *this = of;
    first_token += share_of(of.tokens_of_ranks[static_cast<std::size_t>(r)], parts, index).begin;
    first = of.first && index == 0;
    for (std::int64_t& tokens : tokens_of_ranks) tokens = share_of(tokens, parts, index).count;
    max_tokens = share_of(of.max_tokens, parts, 0).count;
  }
};

/// What the choice of a strategy depends on beside the layer.
struct StrategyQuestion {
  std::optional<StrategyKind> wanted = {};
  std::int64_t most_tokens = 0;
  bool operator==(const StrategyQuestion&) const = default;
};

struct ParallelLayer::State {
  ExpertRank rank;
  ExpertRank exchanging;  ///< the same, with what tokens it has by itself
  MoeShape shape;
  ParallelPlan plan;
  std::optional<DType> router_dtype;  ///< as it was asked for; `parts` has what ranks agreed about
  ExpertPlaces places;
  LayerPlans plans;
  ExpertPassPlans expert_plans;
  SharedGroup group;
  std::shared_ptr<StepPool> pool;
  StrategyChoice last;                                                    ///< of passes
  std::optional<StrategyQuestion> last_question;                          ///< whose answer `last` is
  std::array<std::array<Strategy*, 4>, StepPool::lanes> strategies = {};  ///< the pool's, of each lane by kind
  std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;           ///< of a rank that exchanges nothing
  LayerParts parts;  ///< whose shape is that of the rank. The last to be made, since it is taken once nothing can fail
  std::unique_ptr<Ahead> ahead;  ///< since the first prefetch
  TokenBatch call, chunk;        ///< of the pass under way. Passes use their memory again, as that of the next
  std::array<TokenBatch, StepPool::lanes> micro_batches;

  /// @param of_rank  Left alone by a constructor that throws
  State(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole, std::optional<DType> router,
        LayerParts&& of_rank)
      : rank(of),
        exchanging(how.replace_allreduce ? of.with_own_tokens() : of),
        shape(whole),
        plan(how),
        router_dtype(router),
        places(places_of(of, how, whole)),
        group(of, how.shared_sharding, how.replace_allreduce),
        pool(StepPool::of(of.ep)),
        last(plan.rules ? StrategyChoice() : choose({})),
        alone(alone_of(of, how, whole, of_rank.options)),
        parts(std::move(of_rank)) {
    parts.report.chunk_tokens = parts.options.chunk_tokens;
  }
  static ExpertPlaces places_of(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole) {
    const StreamView stream = of.ep.rank_stream();
    if (how.placement.logical_of.empty()) return {stream, {}, whole.experts, whole.special_experts()};
    return {stream, how.placement, table_of(of, how), how.lost, whole.special_experts()};
  }
  static ReplicaTable table_of(const ExpertRank& of, const ParallelPlan& how) {
    return replica_table(how.placement, how.replicas, of.ep.rank(), of.ep.size(), how.loads);
  }
  /// Rows of a rank alone may be rounded as those of many are.
  static std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone_of(const ExpertRank& of, const ParallelPlan& how,
                                                                         const MoeShape& whole,
                                                                         const MoeLayerOptions& options) {
    std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;
    if (of.ep.size() == 1 && how.wire == WireFormat::none)
      for (auto& strategy : alone)
        strategy = Strategy::make_local(of.ep.rank_stream(), of.experts, problem_of(whole, options, how.wire));
    return alone;
  }

  /// Errors: invalid_argument  the plan has an expert at a place of this rank that has no memory
  void expect_memory_for(const PlacementPlan& placement, const ExpertRank& of) const {
    require(places_of_experts(of, placement) <= parts.local_experts(),
            "placement: rank {} has memory for {} experts, and one at its place {}", of.ep.rank(),
            parts.local_experts(), places_of_experts(of, placement) - 1);
  }

  /// How a call is cut.
  struct Cut {
    std::int32_t chunks, batches;  ///< batches of each chunk
  };
  Cut cut(const Step& step, std::int64_t most_tokens) const;
  StrategyChoice choose(const StrategyQuestion& question) const;
  Strategy& strategy(std::size_t lane, StrategyKind kind);
  /// Of a batch of at most so many tokens on each rank.
  std::uint64_t batch_bytes(std::int64_t tokens, StrategyKind kind);
  std::uint64_t workspace_bytes(const Step& step);

  /// What else ranks have alike that make a pass of this layer.
  std::vector<Agreed> agreed_about_layer(const MoeForward& args) const {
    std::vector<Agreed> agreed = {
        {"hidden", shape.hidden}, {"top_k", shape.router.top_k}, {"experts", rank.experts}, {"wire", plan.wire}};
    if (group.adds_parts())
      agreed.emplace_back("routed or shared part apart", args.routed_out.present() || args.shared_out.present());
    return agreed;
  }
  /// With the step's mask, and as much of the workspace as is needed.
  MoeForward checked(const MoeForward& given, const Step& step);
  /// Errors: unsupported  rows of experts that do not come home
  void expect_rows_home(const MoeForward& args, StrategyKind kind) const;
  /// @param args  checked
  void forward(const MoeForward& args, const AgreedStep& step, Submit submit);
  void prefetch(const MoeInputs& tokens, Submit submit);
  void run(const MoeForward& args, const TokenBatch& batch, std::int32_t batches);
  LayerPass pass(std::size_t lane, const MoeForward& args, const TokenBatch& batch);
};

}  // namespace moecl
