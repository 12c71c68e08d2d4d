// New placements of experts, on one core: 58 layers of 256 experts, 320 places, 64 ranks. The reference's bar is 1 ms.
#include <moecl/balance.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

namespace moecl::bench {
namespace {

void balance_layers(benchmark::State& state, BalancePolicy policy) {
  BalanceProblem problem;
  problem.layers = 58, problem.experts = 256, problem.ranks = 64, problem.places = 320;
  problem.expert_groups = 8, problem.nodes = static_cast<std::int32_t>(state.range(0));
  std::mt19937_64 random(1);
  std::normal_distribution<double> popularity(0, 1);
  for (int i = 0; i < problem.layers * problem.experts; ++i)
    problem.loads.push_back(std::round(std::exp(popularity(random)) * 1000));
  Balanced found;
  for (auto _ : state) benchmark::DoNotOptimize(found = balance(policy, problem));
  state.counters["fullest/mean"] = found.load / found.mean_load;
}

const bool balances = [] {
  for (const BalancePolicy policy : {BalancePolicy::deepseek, BalancePolicy::vllm, BalancePolicy::moecl})
    benchmark::RegisterBenchmark(fmt::format("balance/{}", name(policy)).c_str(),
                                 [=](benchmark::State& state) { balance_layers(state, policy); })
        ->ArgName("nodes")
        ->Arg(1)
        ->Arg(8)
        ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace moecl::bench
