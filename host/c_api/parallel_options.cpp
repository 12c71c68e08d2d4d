#include "host/c_api/parallel.hpp"

namespace moecl::c_api {
namespace {

static_assert(static_cast<int>(StrategyRules::a2) + 1 == MOECL_RULES_A2 &&
              static_cast<int>(StrategyRules::a3) + 1 == MOECL_RULES_A3 &&
              static_cast<int>(StrategyRules::a5) + 1 == MOECL_RULES_A5 &&
              static_cast<int>(StrategyRules::p310) + 1 == MOECL_RULES_310P &&
              static_cast<int>(StrategyRules::moecl) + 1 == MOECL_RULES_MOECL);
static_assert(static_cast<int>(StrategyKind::mc2) + 1 == MOECL_STRATEGY_MC2 &&
              static_cast<int>(StrategyKind::all_gather) + 1 == MOECL_STRATEGY_ALL_GATHER &&
              static_cast<int>(StrategyKind::all2all_v) + 1 == MOECL_STRATEGY_ALL2ALL_V &&
              static_cast<int>(StrategyKind::multicast) + 1 == MOECL_STRATEGY_MULTICAST);
static_assert(static_cast<int>(ExpertSharding::experts) == MOECL_SHARD_EXPERTS &&
              static_cast<int>(ExpertSharding::intermediate) == MOECL_SHARD_INTERMEDIATE);
static_assert(static_cast<int>(ExpertPlacement::linear) == MOECL_PLACE_LINEAR &&
              static_cast<int>(ExpertPlacement::round_robin) == MOECL_PLACE_ROUND_ROBIN);
static_assert(static_cast<int>(WireFormat::none) == MOECL_WIRE_NONE &&
              static_cast<int>(WireFormat::int8) == MOECL_WIRE_INT8 &&
              static_cast<int>(WireFormat::fp8) == MOECL_WIRE_FP8 &&
              static_cast<int>(WireFormat::mxfp8) == MOECL_WIRE_MXFP8);
static_assert(static_cast<int>(SharedSharding::replicated) == MOECL_SHARED_REPLICATED &&
              static_cast<int>(SharedSharding::tokens) == MOECL_SHARED_TOKENS &&
              static_cast<int>(SharedSharding::intermediate) == MOECL_SHARED_INTERMEDIATE);

std::optional<std::int64_t> threshold(std::int64_t tokens, const char* field) {
  require(tokens >= 0, "parallel.{}: {} is negative", field, tokens);
  if (tokens == 0) return std::nullopt;
  return tokens;
}

}  // namespace

PlacementPlan given_placement(const std::int32_t* expert_of_place, std::int32_t count, std::int32_t experts,
                              bool may_lack) {
  std::vector<std::int32_t> table(expert_of_place, expert_of_place + count);
  return may_lack ? place_what_is_left(std::move(table), experts) : place_as_given(std::move(table), experts);
}

Decided::Decided(const moecl_parallel_options& from, const MoeShape& shape, std::int32_t ranks)
    : sharding(enumerator(from.expert_sharding, ExpertSharding::intermediate, "parallel.expert_sharding")),
      ranks_per_node(from.ranks_per_node) {
  require(from.may_lack == 0 || from.expert_of_place != nullptr, "parallel.may_lack: goes with expert_of_place");
  const bool whole = sharding == ExpertSharding::experts;
  require(whole || from.redundant_experts == 0,
          "parallel.redundant_experts: {}, but ranks that divide every expert have all of them",
          from.redundant_experts);
  grid = ParallelConfig::make(ranks, 0, or_default(from.tp, 1), or_default(from.pcp, 1), or_default(from.sp, 1), whole);
  plan.dbo_prefill_token_threshold = threshold(from.dbo_prefill_token_threshold, "dbo_prefill_token_threshold");
  plan.dbo_decode_token_threshold = threshold(from.dbo_decode_token_threshold, "dbo_decode_token_threshold");
  const auto wanted = enumerator(from.placement, ExpertPlacement::round_robin, "parallel.placement");
  if (from.shares != nullptr) {
    require(whole && from.redundant_experts == 0 && wanted == ExpertPlacement::linear &&
                from.expert_of_place == nullptr && from.places == 0,
            "parallel.shares: goes with neither redundant_experts, placement, expert_of_place nor parts of experts");
    const std::vector<std::int32_t> shares(from.shares, from.shares + ranks);
    plan.placement = place_in_shares(shares);
    require(plan.placement.logical() == shape.experts, "parallel.shares: {} experts in all, the layer has {}",
            plan.placement.logical(), shape.experts);
  } else if (from.expert_of_place == nullptr) {
    require(from.places == 0, "parallel.places: {} of no expert_of_place", from.places);
    plan.placement =
        place_experts({shape.experts, whole ? ranks : 1, shape.router.groups, from.redundant_experts, wanted});
  } else {
    require(whole && from.redundant_experts == 0 && wanted == ExpertPlacement::linear,
            "parallel.expert_of_place: goes with neither redundant_experts, placement nor parts of experts");
    require(from.places >= (from.may_lack != 0 ? ranks : shape.experts), "parallel.places: {} of {} experts",
            from.places, shape.experts);
    plan.placement = given_placement(from.expert_of_place, from.places, shape.experts, from.may_lack != 0);
  }
  plan.wire = enumerator(from.wire, WireFormat::mxfp8, "parallel.wire");
  plan.shared_sharding = enumerator(from.shared_sharding, SharedSharding::intermediate, "parallel.shared_sharding");
  plan.replace_allreduce = from.replace_allreduce != 0 || grid.sp_size > 1;
  require(from.strategy >= MOECL_STRATEGY_AUTO && from.strategy <= MOECL_STRATEGY_MULTICAST,
          "parallel.strategy: {} is not in [0, {}]", from.strategy, static_cast<int>(MOECL_STRATEGY_MULTICAST));
  SelectStrategy problem{ranks, plan.replace_allreduce ? 1 : grid.same_tokens};
  if (from.max_tokens != 0) problem.max_tokens = from.max_tokens;
  problem.sharding = sharding;
  problem.ranks_per_node = ranks_per_node;
  problem.experts = shape.experts;
  problem.top_k = shape.router.top_k;
  require(from.rules >= MOECL_RULES_ONCE && from.rules <= MOECL_RULES_MOECL, "parallel.rules: {} is not in [0, {}]",
          from.rules, static_cast<int>(MOECL_RULES_MOECL));
  if (from.rules != MOECL_RULES_ONCE) problem.rules = static_cast<StrategyRules>(from.rules - 1);
  if (from.strategy != MOECL_STRATEGY_AUTO)
    problem.wanted = static_cast<StrategyKind>(from.strategy - 1);
  else if (from.rules != MOECL_RULES_ONCE)
    plan.rules = problem.rules;
  plan.replicas = enumerator(from.replica_choice, ReplicaChoice::per_rank, "parallel.replica_choice");
  plan.lost = enumerator(from.lost_experts, LostExperts::masked, "parallel.lost_experts");
  strategy = select_strategy(problem);
  plan.strategy = strategy.kind;
}

moecl_parallel_layer* make_handle(std::shared_ptr<GroupOfStreams> ranks, const ExpertRank& rank, const Decided& decided,
                                  ParallelLayer layer) {
  const ParallelConfig& grid = decided.grid;
  return new moecl_parallel_layer{
      std::move(ranks),
      rank,
      decided.strategy,
      decided.plan.placement,
      std::move(layer),
      {},
      ParallelConfig::make(rank.ep.size(), rank.ep.rank(), grid.same_tokens, grid.pcp_size, grid.sp_size, grid.use_ep),
      decided.plan.replace_allreduce,
      decided.plan.rules.has_value()};
}

}  // namespace moecl::c_api
