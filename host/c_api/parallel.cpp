// The C interface of layers over several ranks.
#include "host/c_api/parallel.hpp"

#include <moecl/expert_migration.hpp>

#include "host/c_api/forward.hpp"

struct moecl_agreed_step {
  moecl::AgreedStep step;
};

namespace moecl::c_api {
namespace {

Step step_of(const moecl_parallel_layer& of, const moecl_step* given) {
  const auto from = read_options(given, "step");
  require(from.strategy >= MOECL_STRATEGY_AUTO && from.strategy <= MOECL_STRATEGY_MULTICAST,
          "step.strategy: {} is not in [0, {}]", from.strategy, static_cast<int>(MOECL_STRATEGY_MULTICAST));
  require(from.max_tokens_across_dp >= 0, "step.max_tokens_across_dp: {} is negative", from.max_tokens_across_dp);
  Step step;
  if (from.strategy != MOECL_STRATEGY_AUTO) step.strategy = static_cast<StrategyKind>(from.strategy - 1);
  step.reduce_results = from.partial_sums == 0;
  if (from.max_tokens_across_dp != 0) step.max_tokens_across_dp = from.max_tokens_across_dp;
  const std::int32_t groups = of.own_tokens ? of.rank.ep.size() : of.rank.dp.size();
  const auto counts = [&](const std::int64_t* array) {
    return array == nullptr ? std::vector<std::int64_t>() : std::vector<std::int64_t>(array, array + groups);
  };
  step.num_tokens_across_dp = counts(from.num_tokens_across_dp);
  step.cu_tokens_across_dp = counts(from.cu_tokens_across_dp);
  step.uniform_decode = from.uniform_decode != 0;
  if (from.micro_batches != 0) step.micro_batches = from.micro_batches;
  require(from.tokens >= 0, "step.tokens: {} is negative", from.tokens);
  step.finished = vector_of(*of.rank.ep.rank_stream().context, from.finished, "step.finished", DType::u8, from.tokens);
  return step;
}

/// The experts at the places of a rank.
std::vector<std::int64_t> experts_of(const ExpertRank& rank, const PlacementPlan& placement) {
  const auto first = placement.logical_of.begin() + rank.first_expert;
  std::vector<std::int64_t> experts(first, first + rank.local_experts);
  while (!experts.empty() && experts.back() < 0) experts.pop_back();  // free places
  return experts;
}

MoeWeights of_experts(const MoeWeights& all, const std::vector<std::int64_t>& experts) {
  MoeWeights some = all;
  some.experts.clear();
  for (const std::int64_t expert : experts) some.experts.push_back(all.experts[static_cast<std::size_t>(expert)]);
  return some;
}

/// The placement of the caller's table, which must have as many places as the layer.
PlacementPlan given_places(moecl_parallel_layer& of, const std::int32_t* expert_of_place, std::int32_t count,
                           bool may_lack) {
  return of.rank.ep.together([&] {
    const std::int32_t* const first = &required(expert_of_place, "expert_of_place");
    require(count == of.placement.physical(), "count: expected {} places, got {}", of.placement.physical(), count);
    return given_placement(first, count, of.layer.shape().experts, may_lack);
  });
}

/// @param weights_of  Gives the weights of a list of experts
template <class Weights>
moecl_parallel_layer* make_layer(const moecl_communicator& on, const Decided& decided, const MoeShape& shape,
                                 const MoeLayerOptions& options, Weights weights_of) {
  const PlacementPlan& placement = decided.plan.placement;
  const ExpertRank rank = decided.rank_of(on.communicator);
  return make_handle(on.ranks, rank, decided,
                     ParallelLayer(rank, decided.plan, shape, weights_of(experts_of(rank, placement)), options));
}

/// Runs a pass and records the bytes that it received. @param run  Called with the layer and its operands
template <class Run>
moecl_status pass(moecl_parallel_layer* layer, const moecl_forward_args* args, Run run) {
  if (layer == nullptr) return failed(MOECL_INVALID_ARGUMENT, "layer: the pointer is null");
  Communicator& ranks = layer->rank.ep;
  return guarded([&] {
    ranks.together([&] {
      const ParallelLayer& of = layer->layer;
      const MoeForward forward = forward_args(*ranks.rank_stream().context, of.shape(), of.options(),
                                              layer->rank.local_experts, read_struct(args, "args"));
      const auto received = [&](const Communicator& from) {
        std::uint64_t bytes = 0;
        for (std::int32_t peer = 0; peer < from.size(); ++peer) bytes += from.bytes_received(peer);
        return bytes;
      };
      const std::uint64_t before = received(ranks), within_before = received(layer->rank.node);
      run(*layer, forward);
      if (layer->has_rules) layer->strategy = of.last_strategy();
      layer->bytes_received = received(ranks) - before;
      layer->bytes_between_nodes = layer->bytes_received - (received(layer->rank.node) - within_before);
    });
  });
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_parallel_layer_load(moecl_communicator* communicator, const char* model_dir, int32_t layer,
                                       const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                       moecl_parallel_layer** out_layer) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_parallel_layer*& out = required(out_layer, "out_layer");
    const moecl_layer_options given = read_options(options, "options");
    const StoredLayer stored(model_dir, layer, given.router_spec, given.num_fused_shared_experts);
    const MoeShape& shape = stored.config.shape;
    const Decided decided(read_options(parallel, "parallel"), shape, ranks.size());
    out = make_layer(*communicator, decided, shape, stored.options(given, stored.weights({0})),
                     [&](const std::vector<std::int64_t>& experts) { return stored.weights(experts); });
    out->router_spec = text_or_empty(given.router_spec);
  });
}

moecl_status moecl_parallel_layer_create(moecl_communicator* communicator, const moecl_layer_desc* desc,
                                         const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                         moecl_parallel_layer** out_layer) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_parallel_layer*& out = required(out_layer, "out_layer");
    const FusedShared all = layer_of(read_struct(desc, "desc"));
    const Decided decided(read_options(parallel, "parallel"), all.shape, ranks.size());
    out = make_layer(*communicator, decided, all.shape,
                     layer_options(read_options_beside_desc(options), stored_dtype(all.weights)),
                     [&](const std::vector<std::int64_t>& experts) { return of_experts(all.weights, experts); });
  });
}

moecl_status moecl_parallel_layer_reload(moecl_parallel_layer* layer, const char* model_dir, int32_t decoder_layer) {
  return guarded([&] {
    moecl_parallel_layer& of = required(layer, "layer");
    const StoredLayer stored(model_dir, decoder_layer, of.router_spec.c_str(),
                             of.layer.shape().router.fused_shared_experts);
    of.layer.replace_weights(stored.weights(experts_of(of.rank, of.placement)));
  });
}

moecl_status moecl_parallel_layer_replace(moecl_parallel_layer* layer, const moecl_layer_desc* desc) {
  return guarded([&] {
    moecl_parallel_layer& of = required(layer, "layer");
    const MoeWeights all = layer_of(read_struct(desc, "desc")).weights;
    require(all.experts.size() == static_cast<std::size_t>(of.layer.shape().experts),
            "weights: {} experts, the layer has {}", all.experts.size(), of.layer.shape().experts);
    of.layer.replace_weights(of_experts(all, experts_of(of.rank, of.placement)));
  });
}

moecl_status moecl_parallel_layer_replace_expert(moecl_parallel_layer* layer, int32_t place,
                                                 const moecl_layer_desc* desc) {
  return guarded([&] { required(layer, "layer").layer.replace_expert(place, expert_of(read_struct(desc, "desc"))); });
}

moecl_status moecl_parallel_layer_destroy(moecl_parallel_layer* layer) {
  return guarded([&] { delete layer; });
}

moecl_status moecl_parallel_layer_describe(const moecl_parallel_layer* layer, moecl_parallel_layer_info* out_info) {
  return guarded([&] {
    const moecl_parallel_layer& of = required(layer, "layer");
    const MoeShape& shape = of.layer.shape();
    moecl_parallel_layer_info info{};
    info.hidden = shape.hidden;
    info.intermediate = shape.intermediate;
    info.shared_intermediate = shape.shared_intermediate;
    info.experts = shape.experts;
    info.top_k = shape.router.top_k;
    info.dtype = number_of(of.layer.options().dtype);
    info.strategy = static_cast<std::int32_t>(of.strategy.kind) + 1;
    info.placement = static_cast<std::int32_t>(of.placement.placement);
    info.places = of.rank.local_experts;
    info.first_place = of.rank.first_expert;
    info.weight_bytes = of.layer.report().weight_bytes;
    info.workspace_bytes = of.layer.workspace_bytes();
    info.bytes_received = of.bytes_received;
    info.bytes_between_nodes = of.bytes_between_nodes;
    info.expert_hidden = shape.expert_width();
    info.vocabulary = shape.vocabulary;
    info.choices = shape.choices();
    info.router_dtype = of.layer.has_router() ? number_of(of.layer.report().router_dtype) : MOECL_DEFAULT_DTYPE;
    info.all_places = of.placement.physical();
    info.dp_rank = of.place.dp_rank;
    info.pcp_rank = of.place.pcp_rank;
    info.tp_rank = of.rank.tp.rank();
    copy_text(of.strategy.reason, info.strategy_reason);
    copy_text(of.placement.reason, info.placement_reason);
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_parallel_layer_places(const moecl_parallel_layer* layer, int32_t* out_expert_of_place,
                                         int32_t count) {
  return guarded([&] {
    const std::vector<std::int32_t>& experts = required(layer, "layer").placement.logical_of;
    required(out_expert_of_place, "out_expert_of_place");
    require(static_cast<std::size_t>(count) == experts.size(), "count: expected {} places, got {}", experts.size(),
            count);
    std::copy(experts.begin(), experts.end(), out_expert_of_place);
  });
}

moecl_status moecl_parallel_layer_expert_map(const moecl_parallel_layer* layer, char* out_text, uint64_t text_bytes) {
  return guarded([&] {
    const moecl_parallel_layer& of = required(layer, "layer");
    require(text_bytes >= 1, "text_bytes: 0 leave no room for the NUL");
    const std::vector<std::int64_t> experts = experts_of(of.rank, of.placement);
    copy_text(compressed_text({experts.begin(), experts.end()}), &required(out_text, "out_text"), text_bytes);
  });
}

moecl_status moecl_parallel_layer_residency(const moecl_parallel_layer* layer, moecl_residency_counts* out_counts) {
  return guarded([&] {
    const ParallelLayer& of = required(layer, "layer").layer;
    write_struct(residency_counts(of.report(), of.residency()), out_counts, "out_counts");
  });
}

struct moecl_expert_migration {
  moecl_parallel_layer* layer;
  PlacementPlan target;
  ExpertMigration migration;
};

moecl_status moecl_parallel_layer_update_expert_map(moecl_parallel_layer* layer, const int32_t* expert_of_place,
                                                    int32_t count, int32_t may_lack) {
  return guarded([&] {
    moecl_parallel_layer& of = required(layer, "layer");
    const PlacementPlan plan = given_places(of, expert_of_place, count, may_lack != 0);
    of.layer.update_expert_map(plan);
    of.placement = plan;
  });
}

moecl_status moecl_parallel_layer_in_group(moecl_parallel_layer* layer, moecl_communicator* communicator,
                                           const int32_t* expert_of_place, int32_t count, int32_t may_lack) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_parallel_layer& of = required(layer, "layer");
    require(count >= ranks.size(), "count: {} places of {} ranks", count, ranks.size());
    if (of.rank.node.size() != of.rank.ep.size())
      fail(ErrorCode::unsupported, "in_group: the layer has ranks of several nodes");
    const PlacementPlan placement =
        given_placement(&required(expert_of_place, "expert_of_place"), count, of.layer.shape().experts, may_lack != 0);
    const ParallelConfig& old = of.place;
    const ExpertSharding sharding = of.rank.sharding;
    const ParallelConfig place = ParallelConfig::make(ranks.size(), ranks.rank(), old.same_tokens, old.pcp_size,
                                                      old.sp_size, sharding == ExpertSharding::experts);
    const ExpertRank rank(ranks, old.same_tokens, placement.physical(), sharding);
    of.layer = std::move(of.layer).in_group(rank, placement);
    of.rank = rank;
    of.placement = placement;
    of.place = place;
    of.ranks = communicator->ranks;
  });
}

moecl_status moecl_expert_migration_create(moecl_parallel_layer* layer, const int32_t* expert_of_place, int32_t count,
                                           uint64_t bytes_per_step, moecl_expert_migration** out_migration) {
  return guarded([&] {
    moecl_parallel_layer& of = required(layer, "layer");
    moecl_expert_migration*& out = required(out_migration, "out_migration");
    const PlacementPlan target = given_places(of, expert_of_place, count, of.placement.may_lack);
    out = new moecl_expert_migration{&of, target, ExpertMigration(of.layer, target, {bytes_per_step})};
  });
}

moecl_status moecl_expert_migration_step(moecl_expert_migration* migration, int64_t* out_left) {
  return guarded([&] {
    ExpertMigration& of = required(migration, "migration").migration;
    int64_t& left = required(out_left, "out_left");
    of.step();
    left = of.progress().moves - of.progress().moved;
  });
}

moecl_status moecl_expert_migration_commit(moecl_expert_migration* migration) {
  return guarded([&] {
    moecl_expert_migration& of = required(migration, "migration");
    of.migration.commit();
    of.layer->placement = of.target;
  });
}

moecl_status moecl_expert_migration_destroy(moecl_expert_migration* migration) {
  return guarded([&] { delete migration; });
}

moecl_status moecl_parallel_layer_forward(moecl_parallel_layer* layer, const moecl_forward_args* args) {
  return moecl_parallel_layer_forward_step(layer, args, nullptr);
}

moecl_status moecl_parallel_layer_forward_step(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                               const moecl_step* step) {
  return moecl_parallel_layer_forward_events(layer, args, step, 0, nullptr, nullptr);
}

moecl_status moecl_parallel_layer_forward_events(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_step* step, uint32_t num_wait_events,
                                                 _cl_event* const* wait_events, _cl_event** out_event) {
  return pass(layer, args, [&](moecl_parallel_layer& of, const MoeForward& forward) {
    Event done;
    const WaitList wait = wait_list(*of.rank.ep.rank_stream().context, num_wait_events, wait_events);
    const Step how = step_of(of, step);
    of.layer.forward(forward, how, {wait, out_event != nullptr ? &done : nullptr});
    if (out_event != nullptr) *out_event = done.release();
  });
}

moecl_status moecl_parallel_layer_forward_agreed(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                                 const moecl_agreed_step* step) {
  return pass(layer, args, [&](moecl_parallel_layer& of, const MoeForward& forward) {
    of.layer.forward(forward, required(step, "step").step);
  });
}

moecl_status moecl_shares_by_rates(int32_t experts, const double* rates, int32_t ranks, int32_t* out_shares) {
  return guarded([&] {
    require(ranks >= 1, "ranks: {}", ranks);
    const double* const first = &required(rates, "rates");
    const std::vector<std::int32_t> shares = shares_by_rates(experts, {first, first + ranks});
    std::copy(shares.begin(), shares.end(), &required(out_shares, "out_shares"));
  });
}

moecl_status moecl_parallel_layer_prefetch(moecl_parallel_layer* layer, const moecl_forward_args* args,
                                           uint32_t num_wait_events, _cl_event* const* wait_events,
                                           _cl_event** out_event) {
  if (layer == nullptr) return failed(MOECL_INVALID_ARGUMENT, "layer: the pointer is null");
  Communicator& ranks = layer->rank.ep;
  return guarded([&] {
    ranks.together([&] {
      const Context& context = *ranks.rank_stream().context;
      const MoeForward tokens = forward_args(context, layer->layer.shape(), layer->layer.options(),
                                             layer->rank.local_experts, read_struct(args, "args"));
      Event done;
      const WaitList wait = wait_list(context, num_wait_events, wait_events);
      layer->layer.prefetch(tokens, {wait, out_event != nullptr ? &done : nullptr});
      if (out_event != nullptr) *out_event = done.release();
    });
  });
}

moecl_status moecl_parallel_layer_agree(moecl_parallel_layer* layer, const moecl_step* step, int64_t tokens,
                                        moecl_agreed_step** out_step) {
  if (layer == nullptr) return failed(MOECL_INVALID_ARGUMENT, "layer: the pointer is null");
  return guarded([&] {
    layer->rank.ep.together([&] {
      moecl_agreed_step*& out = required(out_step, "out_step");
      require(tokens >= 0, "tokens: {} is negative", tokens);
      out = new moecl_agreed_step{layer->layer.agree(step_of(*layer, step), tokens)};
    });
  });
}

moecl_status moecl_agreed_step_destroy(moecl_agreed_step* step) {
  return guarded([&] { delete step; });
}

moecl_status moecl_parallel_layer_workspace_bytes(const moecl_parallel_layer* layer, const moecl_step* step,
                                                  uint64_t* out_workspace_bytes) {
  return guarded([&] {
    const moecl_parallel_layer& of = required(layer, "layer");
    required(out_workspace_bytes, "out_workspace_bytes") = of.layer.workspace_bytes(step_of(of, step));
  });
}
