#pragma once
// A layer over the ranks of a group, kept between passes.
#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {

/// The same layer on every rank of a group, with the rank's share of the tokens.
struct LayerOfRanks {
  Model model;
  Ranks on;
  std::vector<std::unique_ptr<ParallelLayer>> layers;
  std::vector<std::int64_t> rows;  ///< that each rank's experts had in the last pass

  LayerOfRanks(const char* name, std::int32_t ranks, const ParallelPlan& plan, const ExpertBudget& budget = {})
      : model(name), on(ranks, Ranks::first_device), layers(static_cast<std::size_t>(ranks)) {
    model.options.budget = budget;
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, plan.placement.physical());
      layers[static_cast<std::size_t>(world.rank())] = std::make_unique<ParallelLayer>(
          rank, plan, model.config.shape, model.weights(plan.placement, rank.first_expert, rank.local_experts),
          model.options);
    });
  }
  /// Moves the layer to the group that `on` has now. A rank keeps its layer, in the order of `layers`, or makes one.
  void regroup(const PlacementPlan& placement) {
    layers.resize(static_cast<std::size_t>(on.group.size()));
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, placement.physical());
      std::unique_ptr<ParallelLayer>& layer = layers[static_cast<std::size_t>(world.rank())];
      if (layer != nullptr)
        *layer = std::move(*layer).in_group(rank, placement);
      else
        layer = std::make_unique<ParallelLayer>(rank, ParallelPlan{StrategyKind::mc2, placement}, model.config.shape,
                                                model.weights(placement, rank.first_expert, rank.local_experts),
                                                model.options);
    });
  }
  /// Goes on in a group of the first `ranks` ranks alone, once the old group has ended.
  void keep_first(std::size_t ranks, const PlacementPlan& placement) {
    on.group.make({on.streams().begin(), on.streams().begin() + static_cast<std::ptrdiff_t>(ranks)}, {});
    regroup(placement);
  }
  /// @param each  is called for every rank before its pass
  Outputs pass(
      StrategyKind kind, const std::function<void(ParallelLayer&)>& each = [](ParallelLayer&) {},
      std::vector<double>* faults = nullptr) {
    const std::int64_t ranks = on.group.size(), tokens = model.tokens();
    std::vector<Outputs> parts(layers.size());
    std::vector<std::vector<double>> words(layers.size());
    rows.assign(layers.size(), 0);
    on.group.run([&](Communicator& world) {
      const auto r = static_cast<std::size_t>(world.rank());
      const std::int64_t first = tokens * world.rank() / ranks, end = tokens * (world.rank() + 1) / ranks;
      each(*layers[r]);
      const DeviceTensor fault(world.stream(), DType::i32, {4}, {0, 0, 0, 0}),
          counts(world.stream(), DType::i32, {layers[r]->rank().local_experts});
      parts[r] =
          forward<ParallelLayer::Forward>(world.stream(), model, first, end - first, [&](ParallelLayer::Forward& args) {
            args.fault = fault;
            args.expert_num_tokens = counts;
            layers[r]->forward(args, {kind});
          });
      words[r] = fault.values(world.stream());
      for (const double count : counts.values(world.stream())) rows[r] += static_cast<std::int64_t>(count);
      world.stream().finish();
    });
    Outputs all;
    for (const Outputs& part : parts) all.append(part);
    if (faults != nullptr)
      for (const auto& word : words) faults->insert(faults->end(), word.begin(), word.end());
    return all;
  }
};

/// Expects that two ranks of a new layer refuse `body`, and that experts stay where they are.
inline void expect_refused(const char* name, const PlacementPlan& placement, const std::string& expected,
                           const std::function<void(ParallelLayer&)>& body) {
  LayerOfRanks layer(name, 2, {StrategyKind::mc2, placement});
  EXPECT_THAT(
      [&] {
        layer.on.group.run([&](Communicator& world) { body(*layer.layers[static_cast<std::size_t>(world.rank())]); });
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr(expected)));
  EXPECT_EQ(layer.layers.front()->placement().logical_of, placement.logical_of);
}

/// Expects the same results from another number of ranks. Each rank then has another number of tokens, for which a
/// GPU's router may use another kernel.
inline void expect_same_of_other_ranks(const Outputs& after, const Outputs& before) {
  const bool is_cpu = devices().front()->caps().type == DeviceType::cpu;
  EXPECT_EQ(after.ids, before.ids);
  EXPECT_LE(relative_error(after.out, before.out), is_cpu ? 0 : 1e-6);
}

}  // namespace moecl::test
