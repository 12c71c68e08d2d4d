#pragma once
// Layers over ranks for tests of the C interface.
#include <moecl/parallel_layer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/host/c_golden.hpp"
#include "tests/host/c_group.hpp"

namespace moecl::test {

inline constexpr moecl_strategy c_strategies[] = {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER,
                                                  MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST};

using ParallelLayerHandle = Handle<moecl_parallel_layer, moecl_parallel_layer_destroy>;

/// The layer handles of all ranks, and the results of their passes.
struct CLayers {
  CGroup& on;
  std::vector<ParallelLayerHandle> of_rank;

  explicit CLayers(CGroup& group) : on(group), of_rank(group.communicators.size()) {}
  void load(const std::string& model, const moecl_parallel_options& parallel,
            const moecl_layer_options* options = nullptr) {
    on.run([&](std::size_t rank, moecl_communicator* communicator) {
      EXPECT_OK(moecl_parallel_layer_load(communicator, golden_dir(model).c_str(), -1, &parallel, options,
                                          of_rank[rank].out()));
    });
  }
  moecl_parallel_layer_info info(std::size_t rank) const {
    auto told = sized<moecl_parallel_layer_info>();
    EXPECT_OK(moecl_parallel_layer_describe(of_rank[rank], &told));
    return told;
  }
  /// One rank's results of a pass: f32 outputs, also the optional ones.
  struct Pass {
    std::vector<float> out, routed;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  /// Ranks that have no layer yet take no part.
  /// @param routing  passes whose routing the caller provides to this one; empty: the router chooses
  std::vector<Pass> forward(const std::vector<std::vector<double>>& inputs,
                            const std::vector<std::uint8_t>& finished = {}, const std::vector<Pass>& routing = {}) {
    std::vector<Pass> passes(of_rank.size());
    on.run([&](std::size_t rank, moecl_communicator*) {
      if (of_rank[rank] == nullptr) return;
      const moecl_parallel_layer_info layer = info(rank);
      const std::vector<double>& x = inputs[rank];
      const std::size_t tokens = x.size() / static_cast<std::size_t>(layer.hidden),
                        ids = tokens * static_cast<std::size_t>(layer.top_k);
      auto args = sized<moecl_forward_args>();
      args.tokens = static_cast<std::int64_t>(tokens);
      args.x = on.allocate<float>(rank, {x.begin(), x.end()});
      args.out = on.allocate(rank, std::vector<float>(x.size()));
      args.routed_out = on.allocate(rank, std::vector<float>(x.size()));
      moecl_device_array &chosen = routing.empty() ? args.topk_ids : args.ids,
                         &weights = routing.empty() ? args.topk_weights : args.weights;
      chosen = on.allocate(rank, routing.empty() ? std::vector<std::int32_t>(ids) : routing[rank].ids);
      weights = on.allocate(rank, routing.empty() ? std::vector<float>(ids) : routing[rank].weights);
      args.fault = on.allocate(rank, std::vector<std::int32_t>(4));
      if (!finished.empty()) args.finished = on.allocate(rank, finished);
      EXPECT_OK(moecl_parallel_layer_forward(of_rank[rank], &args));
      EXPECT_OK(moecl_check_fault(on.streams[rank], args.fault));
      passes[rank] = {on.read(rank, args.out, x.size()), on.read(rank, args.routed_out, x.size()),
                      on.read<std::int32_t>(rank, chosen, ids), on.read(rank, weights, ids)};
    });
    return passes;
  }
};

/// The rows of `input` for each rank. `tokens` counts them for each dp rank, or for every rank if each has its own.
inline std::vector<std::vector<double>> dealt(const std::vector<double>& input, std::int64_t hidden, std::int32_t ranks,
                                              const std::vector<std::int64_t>& tokens) {
  std::vector<std::vector<double>> of_rank;
  const std::int32_t same = ranks / static_cast<std::int32_t>(tokens.size());
  auto next = input.begin();
  for (const std::int64_t count : tokens) {
    const auto end = next + count * hidden;
    for (std::int32_t i = 0; i < same; ++i) of_rank.emplace_back(next, end);
    next = end;
  }
  return of_rank;
}

/// The golden routing and outputs of a model's first tokens.
struct CGolden {
  std::vector<double> x, logits, ids, weights, out, routed, shared, counts;
  explicit CGolden(const std::string& name)
      : x(golden_values(name, "hidden_states")),
        logits(golden_values(name, "router_logits")),
        ids(golden_values(name, "topk_ids")),
        weights(golden_values(name, "topk_weights")),
        out(golden_values(name, "output")),
        routed(golden_values(name, "routed_output")),
        shared(golden_values(name, "shared_output")),
        counts(golden_values(name, "expert_counts")) {}
};

/// Rows [first, first + count) of a matrix as numbers of another type.
template <class T>
std::vector<T> rows_of(const std::vector<double>& matrix, std::int64_t width, std::int64_t first, std::int64_t count) {
  const auto begin = matrix.begin() + first * width;
  return {begin, begin + count * width};
}

}  // namespace moecl::test
