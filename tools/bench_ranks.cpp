#include "tools/bench_ranks.hpp"

#include "bench/results.hpp"
#include "tools/share_cores.hpp"

namespace moecl::cli {
namespace {

bench::RankPlan plan_of(const RankOptions& options) {
  options.check();
  return {options.ranks, options.tp, options.ranks_per_node(), options.sharding(), options.plan()};
}

}  // namespace

BenchRanks::BenchRanks(const RankOptions& options, const bench::ModelBenchmarks& wanted)
    : options_(options), plan_(plan_of(options)), layers_(wanted, plan_) {}

nlohmann::ordered_json BenchRanks::open(const DeviceOptions& device) {
  const std::string sharing =
      share_cores(options_.launch.process_here(), options_.launch.processes_here(options_.ranks));
  devices_.emplace(device, options_.ranks, false, options_.launch.local(options_.ranks));
  group_.emplace(options_.group(devices_->views()));
  nlohmann::ordered_json facts = bench::device_facts(*devices_->streams.front().view().device);
  facts["launch"] = options_.launch.name();
  facts["rank_places"] = devices_->places + sharing;
  facts["strategy"] = options_.strategy;
  facts["wire"] = options_.wire;
  facts.update(bench::rank_facts(*group_, plan_));
  return facts;
}

}  // namespace moecl::cli
