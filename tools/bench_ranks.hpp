#pragma once
// `moecl bench` with several ranks, which are threads or processes.
#include <nlohmann/json.hpp>

#include <functional>

#include "bench/rank_layers.hpp"
#include "tools/rank_devices.hpp"
#include "tools/rank_options.hpp"

namespace moecl::cli {

/// The group of ranks, and the benchmarks that run over it.
class BenchRanks {
 public:
  /// Registers the benchmarks; opens nothing. Errors: as RankOptions::check and bench::RankLayers
  BenchRanks(const RankOptions& options, const bench::ModelBenchmarks& wanted);
  /// Opens devices, and joins the other ranks. @return  Facts for the document
  nlohmann::ordered_json open(const DeviceOptions& device);
  /// Call it after `open`. As bench::RankLayers::run
  void run(const std::function<void()>& measure) { layers_.run(*group_, measure); }
  bool failed() const { return layers_.failed(); }

 private:
  RankOptions options_;
  bench::RankPlan plan_;
  bench::RankLayers layers_;
  std::optional<RankDevices> devices_;
  std::optional<RankGroup> group_;
};

}  // namespace moecl::cli
