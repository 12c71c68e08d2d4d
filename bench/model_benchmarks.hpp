#pragma once
// Benchmarks by model shape, registered on request:
//
//     grouped_gemm/<shape>/<scheme>/T:<tokens>/moecl     the experts' first product
//     layer/<shape>/<scheme>/T:<tokens>/moecl            a forward pass of the whole layer
//     layer/.../moecl_several_launches                   the same pass, where it may not be one launch
//
// <shape> is followed by "+zipf" or "+trace" where tokens are not routed uniformly.
#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/model_case.hpp"
#include "bench/routing.hpp"

namespace moecl::bench {

struct ModelBenchmarks {
  std::vector<std::string> shapes, schemes;
  std::vector<std::int64_t> tokens;
  std::int32_t experts = 0;  ///< a slice of this many experts; 0: see ModelCase::named
  std::vector<RoutingSource> routings;
  bool layers = true;             ///< false: the products alone
  bool several_launches = false;  ///< layers of as few tokens as one launch may take: also in several launches
};

/// Registers one benchmark, named by that pattern. If `run` throws, the error is its result, and the others go on.
void add_model_benchmark(const char* what, const std::string& implementation, const ModelCase& model,
                         const RoutingSource& source, std::int64_t tokens, std::function<void(benchmark::State&)> run);
/// Frees the device memory of the layers.
void release_layers();

/// Registers the benchmarks with Google Benchmark; nothing is allocated before they run.
/// Errors: invalid_argument  unknown shape or scheme, a slice that the router cannot choose from
void register_models(const ModelBenchmarks& wanted);
/// The shapes by their names in benchmarks: hidden, intermediate, experts, top_k. They are in the document, so that
/// other programs can compute the same without knowing the shapes. Errors: as register_models
nlohmann::ordered_json shape_facts(const ModelBenchmarks& wanted);

}  // namespace moecl::bench
