#pragma once
// The state of a layer over the ranks of a group, on one rank: what it keeps between passes, and how it splits a pass.
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

/// What prefetches use. They run on a queue of their own.
struct ParallelLayer::Ahead {
  ExpertRank rank;
  std::int64_t most_rows = 0;  ///< more rows do not fit the slots of any rank; 0: no rank has a budget
  StepMemory memory;
  LayerPlans plans;
  GatheredChoices choices;

  /// Collective: all ranks call it.
  Ahead(const ExpertRank& of, std::int32_t top_k, const Experts& experts)
      : rank(of.beside()), choices(rank, top_k, memory) {
    for (const auto& theirs : rank.ep.share("prefetch", {experts.limited() ? experts.resident() : 0}))
      most_rows = std::max(most_rows, theirs.front());
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  /// Waits, since commands under way use the memory of this object.
  ~Ahead() {
    try {
      rank.ep.stream().finish();
    } catch (const Error&) {  // a failed device has no commands under way
    }
  }
};

/// A chunk of a pass, or a micro-batch of a chunk.
struct TokenBatch {
  Step step = {};                                  ///< with the chosen strategy, without lists of counts
  std::int64_t first_token = 0;                    ///< as in LayerPass::Part
  bool first = true;                               ///< the same: no other part of the call has come before
  std::vector<std::int64_t> tokens_of_ranks = {};  ///< of this batch
  std::int64_t max_tokens = 0;                     ///< most of any rank, or the bound of the step

  /// Tokens of all ranks; those of a tp group count once. For a bounded step: as many as there can be.
  std::int64_t tokens_of_all(std::int64_t tp) const {
    const auto ranks = static_cast<std::int64_t>(tokens_of_ranks.size()) / tp;
    return step.max_tokens_across_dp ? max_tokens * ranks : tokens_brought(tp);
  }
  /// Tokens that the ranks really bring; those of a tp group count once.
  std::int64_t tokens_brought(std::int64_t tp) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), std::int64_t{0}) / tp;
  }

  /// Becomes part `index` of `parts` of a batch, for the tokens of rank r.
  void become_part(const TokenBatch& of, std::int32_t parts, std::int32_t index, std::int32_t r) {
    *this = of;
    first_token += share_of(of.tokens_of_ranks[static_cast<std::size_t>(r)], parts, index).begin;
    first = of.first && index == 0;
    for (std::int64_t& tokens : tokens_of_ranks) tokens = share_of(tokens, parts, index).count;
    max_tokens = share_of(of.max_tokens, parts, 0).count;
  }
};

/// What the choice of a strategy depends on, beside the layer.
struct StrategyQuestion {
  std::optional<StrategyKind> wanted = {};
  std::int64_t most_tokens = 0;
  bool operator==(const StrategyQuestion&) const = default;
};

struct ParallelLayer::State {
  ExpertRank rank;
  ExpertRank exchanging;  ///< as `rank`; with replace_allreduce without tp groups
  MoeShape shape;
  ParallelPlan plan;
  std::optional<DType> router_dtype;  ///< as asked for; `parts` has the one that ranks agreed about
  ExpertPlaces places;
  LayerPlans plans;
  ExpertPassPlans expert_plans;
  SharedGroup group;
  std::shared_ptr<StepPool> pool;
  StrategyChoice last;                                                    ///< the last choice for a pass
  std::optional<StrategyQuestion> last_question;                          ///< the question that `last` answers
  std::array<std::array<Strategy*, 4>, StepPool::lanes> strategies = {};  ///< the pool's: [lane][kind]
  std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;           ///< for a rank that exchanges nothing
  LayerParts parts;  ///< with the rank's shape. Initialized last: its source is moved from once nothing can fail
  std::unique_ptr<Ahead> ahead;  ///< from the first prefetch on
  TokenBatch call, chunk;        ///< of the pass under way; later passes reuse their memory
  std::array<TokenBatch, StepPool::lanes> micro_batches;

  /// @param of_rank  Not moved from if the constructor throws
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
  /// Local strategies for a single rank. A wire format excludes them, since rows are then rounded as with many ranks.
  static std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone_of(const ExpertRank& of, const ParallelPlan& how,
                                                                         const MoeShape& whole,
                                                                         const MoeLayerOptions& options) {
    std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;
    if (of.ep.size() == 1 && how.wire == WireFormat::none)
      for (auto& strategy : alone)
        strategy = Strategy::make_local(of.ep.rank_stream(), of.experts, problem_of(whole, options, how.wire));
    return alone;
  }

  /// Errors: invalid_argument  the plan has an expert at a place of this rank for which there is no memory
  void expect_memory_for(const PlacementPlan& placement, const ExpertRank& of) const {
    require(places_of_experts(of, placement) <= parts.local_experts(),
            "placement: rank {} has memory for {} experts, and one at its place {}", of.ep.rank(),
            parts.local_experts(), places_of_experts(of, placement) - 1);
  }

  /// How a call is split: into chunks, and each chunk into micro-batches.
  struct Cut {
    std::int32_t chunks, batches;  ///< batches: micro-batches per chunk
  };
  Cut cut(const Step& step, std::int64_t most_tokens) const;
  StrategyChoice choose(const StrategyQuestion& question) const;
  Strategy& strategy(std::size_t lane, StrategyKind kind);
  /// Bytes for a batch of at most so many tokens on each rank.
  std::uint64_t batch_bytes(std::int64_t tokens, StrategyKind kind);
  std::uint64_t workspace_bytes(const Step& step);

  /// Further values that all ranks of a pass must have alike.
  std::vector<Agreed> agreed_about_layer(const MoeForward& args) const {
    std::vector<Agreed> agreed = {
        {"hidden", shape.hidden}, {"top_k", shape.router.top_k}, {"experts", rank.experts}, {"wire", plan.wire}};
    if (group.adds_parts())
      agreed.emplace_back("routed or shared part apart", args.routed_out.present() || args.shared_out.present());
    return agreed;
  }
  /// The checked arguments, with the step's mask, and with only the part of the workspace that is needed.
  MoeForward checked(const MoeForward& given, const Step& step);
  /// Errors: unsupported  expert_rows are asked for, but the strategy brings home sums
  void expect_rows_home(const MoeForward& args, StrategyKind kind) const;
  /// @param args  checked
  void forward(const MoeForward& args, const AgreedStep& step, Submit submit);
  void prefetch(const MoeInputs& tokens, Submit submit);
  void run(const MoeForward& args, const TokenBatch& batch, std::int32_t batches);
  LayerPass pass(std::size_t lane, const MoeForward& args, const TokenBatch& batch);
};

}  // namespace moecl
