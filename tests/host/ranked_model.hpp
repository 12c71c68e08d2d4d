#pragma once
// A golden model on one rank and on several.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/safetensors.hpp>

#include <functional>
#include <numeric>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_run.hpp"

namespace moecl::test {

struct Model {
  Checkpoint checkpoint;
  MoeLayerConfig config;
  MoeLayerOptions options;
  std::vector<double> input;

  explicit Model(const std::string& name, DType dtype = DType::f32)
      : checkpoint(Checkpoint::open(data_path("goldens/" + name))),
        config(checkpoint.config().layer(checkpoint.config().first_moe_layer())) {
    options.dtype = dtype;
    const SafetensorsFile golden = SafetensorsFile::open(data_path("goldens/" + name + "/golden.safetensors"));
    const HostTensor tensor = golden.tensor("hidden_states").in_memory();
    const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data.memory());
    input = decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
  }
  Model(Checkpoint of, std::vector<double> rows)
      : checkpoint(std::move(of)),
        config(checkpoint.config().layer(checkpoint.config().first_moe_layer())),
        input(std::move(rows)) {}
  std::int64_t hidden() const { return config.shape.hidden; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(input.size()) / hidden(); }
  MoeWeights weights(std::int64_t first, std::int64_t count) const {
    return weights(place_experts({config.shape.experts}), first, count);
  }
  MoeWeights weights(const PlacementPlan& placement, std::int64_t first, std::int64_t count) const {
    const auto begin = placement.logical_of.begin() + first;
    std::vector<std::int64_t> experts(begin, begin + count);
    while (!experts.empty() && experts.back() < 0) experts.pop_back();  // free places need no weights
    return find_layer_weights(checkpoint, config, experts);
  }
};

/// How much results of several ranks may differ from those of one, as dispatch/STRATEGIES.md promises. Of unlike
/// devices, one may round the activated rows and another not.
inline double tolerance_between(Ranks::Places places, DType dtype) {
  double tolerance = 1e-6;
  if (places == Ranks::all_platforms)
    for (const auto& device : devices()) tolerance = std::max(tolerance, row_rounding(dtype, device->caps()));
  return tolerance;
}

/// Runs tokens [first, first + tokens) through a layer. `run` gets the arguments that both kinds of layer have.
template <class Forward, class Run>
Outputs forward(StreamView stream, const Model& model, std::int64_t first, std::int64_t tokens, Run run) {
  const MoeShape& shape = model.config.shape;
  const std::int64_t top_k = shape.router.top_k;
  const DeviceTensor x(
      stream, model.options.dtype, {tokens, shape.hidden},
      {model.input.begin() + first * shape.hidden, model.input.begin() + (first + tokens) * shape.hidden});
  const DeviceTensor out(stream, DType::f32, {tokens, shape.hidden}),
      routed(stream, DType::f32, {tokens, shape.hidden}), logits(stream, DType::f32, {tokens, shape.choices()}),
      ids(stream, DType::i32, {tokens, top_k}), weights(stream, DType::f32, {tokens, top_k});
  Forward args;
  args.x = x;
  args.out = out;
  args.routed_out = routed;
  args.router_logits = logits;
  args.topk_ids = ids;
  args.topk_weights = weights;
  run(args);
  return {out.values(stream), routed.values(stream), logits.values(stream), ids.values(stream), weights.values(stream)};
}

inline Outputs of_one_rank(TestDevice& device, const Model& model) {
  const StreamView stream = device.stream;
  const MoeLayer layer(stream, model.config.shape, find_layer_weights(model.checkpoint, model.config), model.options);
  const Buffer workspace(*stream.context, layer.workspace_bytes(model.tokens()));
  return forward<MoeLayer::Forward>(stream, model, 0, model.tokens(), [&](MoeLayer::Forward& args) {
    args.workspace = workspace.view();
    layer.forward(stream, args);
  });
}

/// What a test may change.
struct RankedOptions {
  ExpertSharding sharding = ExpertSharding::experts;
  /// Changes the arguments of a forward pass of tokens [first, first + x.shape[0]).
  std::function<void(ParallelLayer::Forward& args, std::int64_t first)> change = [](auto&, auto) {};
};

/// @param tokens  of each dp rank; with replace_allreduce, of each rank
inline Outputs of_ranks(Ranks& on, const Model& model, const ParallelPlan& plan, std::int32_t tp,
                        const std::vector<std::int64_t>& tokens, bool one_platform, const RankedOptions& options = {}) {
  const PlacementPlan placement =
      plan.placement.logical_of.empty() ? place_experts({model.config.shape.experts}) : plan.placement;
  std::vector<Outputs> parts(static_cast<std::size_t>(on.group.size()));
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, tp, placement.physical(), options.sharding);
    ParallelLayer layer(rank, plan, model.config.shape, model.weights(placement, rank.first_expert, rank.local_experts),
                        model.options);
    const auto mine = tokens.begin() + (plan.replace_allreduce ? world.rank() : rank.dp.rank());
    const std::int64_t first = std::accumulate(tokens.begin(), mine, std::int64_t{0});
    parts[static_cast<std::size_t>(world.rank())] =
        forward<ParallelLayer::Forward>(world.stream(), model, first, *mine, [&](ParallelLayer::Forward& args) {
          options.change(args, first);
          layer.forward(args);
        });
    world.stream().finish();  // without tokens there was nothing to wait for; the layer outlives its commands
  });
  const auto same_tokens = static_cast<std::size_t>(plan.replace_allreduce ? 1 : tp);
  Outputs all;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::size_t in_group = r % same_tokens;
    if (one_platform) {
      EXPECT_TRUE(parts[r] == parts[r - in_group]) << "rank " << r << " and the first of its tp group";
    }
    if (in_group == 0) all.append(parts[r]);
  }
  return all;
}

/// Whether one variant of the products serves few rows and many on the device: kernels_cl/DECISIONS.md.
inline bool one_variant(const TestDevice& device) {
  return device.caps().type == DeviceType::cpu && device.caps().preferred_float_width >= 4;
}

}  // namespace moecl::test
