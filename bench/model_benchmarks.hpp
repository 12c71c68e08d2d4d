#pragma once
// Benchmarks by model shape, registered for what was asked:
//
//     grouped_gemm/<shape>/<scheme>/T:<tokens>/moecl     the experts' first product
//     layer/<shape>/<scheme>/T:<tokens>/moecl            a forward pass of the whole layer
//     layer/.../moecl_several_launches                   the same where it may not be one launch
//
// <shape> has "+zipf" or "+trace" behind it where tokens are not routed uniformly.
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
  std::int32_t experts = 0;  ///< a slice of them; 0: see ModelCase::named
  std::vector<RoutingSource> routings;
  bool layers = true;             ///< else the products alone
  bool several_launches = false;  ///< layers of as few tokens as one launch may take, in several too
};

/// One benchmark by that pattern; `run` may throw: then that is its result, and the others go on.
void add_model_benchmark(const char* what, const std::string& implementation, const ModelCase& model,
                         const RoutingSource& source, std::int64_t tokens, std::function<void(benchmark::State&)> run);
/// Gives the device memory of the layers back.
void release_layers();

/// Names to Google Benchmark; nothing is allocated before they run.
/// Errors: invalid_argument  unknown shape or scheme, a slice that the router cannot choose from
void register_models(const ModelBenchmarks& wanted);
/// The shapes by their names in benchmarks: hidden, intermediate, experts, top_k. For the document, so that whoever
/// computes the same elsewhere need not know them. Errors: as register_models
nlohmann::ordered_json shape_facts(const ModelBenchmarks& wanted);

}  // namespace moecl::bench
