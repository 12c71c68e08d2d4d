// Runs every operator's benchmarks with Google Benchmark's own options; `moecl bench` runs the same benchmarks.
#include "bench/device_time.hpp"
#include "bench/results.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const nlohmann::ordered_json facts = moecl::bench::context_facts();
  for (const auto& [key, value] : facts.items())
    benchmark::AddCustomContext(key, value.is_string() ? value.get<std::string>() : value.dump());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
