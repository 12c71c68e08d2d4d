#pragma once
// The options of `moecl bench` and moecl_bench_peers: which shapes, how long, in which form.
#include <string>
#include <vector>

#include "bench/model_benchmarks.hpp"
#include "tools/device_options.hpp"

namespace moecl::cli {

struct MeasureOptions {
  DeviceOptions device;
  std::string filter = ".", report;
  std::vector<std::string> shapes = {"qwen3-30b-a3b"}, schemes = {"f32", "bf16", "int8_w8a8"}, routing = {"uniform"};
  std::vector<std::int64_t> tokens = {1, 4, 16, 64, 128, 512, 2048};
  std::int32_t experts = 0;
  std::uint64_t seed = 0;
  int repetitions = 1;
  double min_time = 0.3;
  bool several_launches = false, list = false, json = false;

  void add_to(CLI::App& command);
  /// Errors: as RoutingSource::named
  bench::ModelBenchmarks models() const;
  /// Passes the options that Google Benchmark takes as flags.
  void set_flags() const;
};

}  // namespace moecl::cli
