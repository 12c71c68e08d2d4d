#pragma once
// Benchmarks of layers over the ranks of a group, which are threads or processes:
//
//     layer/<shape>/<scheme>/T:<tokens>/ranks:<R>/moecl     a forward pass of T tokens of all ranks together
//
// Rank 0 measures; the other ranks make the passes that it asks for.
#include <moecl/communicator.hpp>
#include <moecl/parallel_layer.hpp>

#include <exception>
#include <functional>
#include <vector>

#include "bench/model_benchmarks.hpp"

namespace moecl::bench {

/// How the ranks divide a layer.
struct RankPlan {
  std::int32_t ranks = 1, tp = 1, ranks_per_node = 1;
  ExpertSharding sharding = ExpertSharding::experts;
  ParallelPlan layer;
};

class RankMember;

class RankLayers {
 public:
  struct Case {
    ModelCase model;
    RoutingSource source;
    std::int64_t tokens;
  };
  /// Registers the cases with Google Benchmark, after removing all others. Errors: as register_models
  RankLayers(const ModelBenchmarks& wanted, RankPlan plan);
  /// Calls `measure`, which runs the benchmarks, if rank 0 is in this process. Other ranks follow rank 0 until it
  /// returns. All processes must call this. Errors: what a pass threw, after which no benchmark is run
  void run(RankGroup& group, const std::function<void()>& measure);
  bool failed() const { return failure_ != nullptr; }

 private:
  void measure(benchmark::State& state, std::size_t number);

  RankPlan plan_;
  std::vector<Case> cases_;
  RankMember* leader_ = nullptr;  ///< rank 0, while `run` executes
  std::exception_ptr failure_;
};

/// Ranks and how they exchange, for the document.
nlohmann::ordered_json rank_facts(const RankGroup& group, const RankPlan& plan);

}  // namespace moecl::bench
