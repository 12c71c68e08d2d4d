#pragma once
// Benchmarks by model shape, registered for what was asked:
//
//     grouped_gemm/<shape>/<scheme>/T:<tokens>/moecl     the experts' first product
//     layer/<shape>/<scheme>/T:<tokens>/moecl            a forward pass of the whole layer
//
// <shape> has "+zipf" or "+trace" behind it where tokens are not routed uniformly.
#include <cstdint>
#include <string>
#include <vector>

#include "bench/routing.hpp"

namespace moecl::bench {

struct ModelBenchmarks {
  std::vector<std::string> shapes, schemes;
  std::vector<std::int64_t> tokens;
  std::int32_t experts = 0;  ///< a slice of them; 0: see ModelCase::named
  std::vector<RoutingSource> routings;
};

/// "qwen3-30b-a3b+zipf"
std::string routed_name(const std::string& shape, const RoutingSource& source);

/// Names to Google Benchmark; nothing is allocated before they run.
/// Errors: invalid_argument  unknown shape or scheme, a slice that the router cannot choose from
void register_models(const ModelBenchmarks& wanted);

}  // namespace moecl::bench
