#include "bench/model_benchmarks.hpp"

#include <moecl/error.hpp>
#include <moecl/trace.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "bench/device_time.hpp"
#include "bench/model_operands.hpp"

namespace moecl::bench {
namespace {

/// Layers of the case that runs; another case's, or more of them, take their place.
template <class Layers>
struct Resident {
  std::string of;
  Layers layers;
};

/// At most one of the two holds memory.
struct Residents {
  Resident<FirstProduct::Layers> products;
  Resident<std::vector<MoeLayer>> whole;
};
Residents& residents() {
  static auto* both = new Residents;  // never destroyed, as the device is not
  return *both;
}

const FirstProduct::Layers& product_layers(const ModelCase& model, int count) {
  auto& [of, layers] = residents().products;
  residents().whole = {};
  const std::string key = model.shape_name + "/" + model.scheme.name;
  if (of != key || static_cast<int>(layers.size()) < count) {
    layers.clear();
    layers = load_layers(model, ModelWeights(model, false), count);
    of = key;
  }
  return layers;
}

const std::vector<MoeLayer>& whole_layers(const ModelCase& model, int count) {
  auto& [of, layers] = residents().whole;
  residents().products = {};
  const std::string key = model.shape_name + "/" + model.scheme.name;
  if (of != key || static_cast<int>(layers.size()) < count) {
    layers.clear();
    const ModelWeights weights(model, true);
    MoeLayerOptions options;
    options.dtype = model.scheme.plain;
    while (static_cast<int>(layers.size()) < count)
      layers.emplace_back(stream(), model.shape, weights.weights, options);
    of = key;
  }
  return layers;
}

void run_product(benchmark::State& state, const ModelCase& model, const RoutingSource& source, std::int64_t tokens) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes() * 2 / 3);
  FirstProduct product(model, routing, product_layers(model, layers));
  state.SetLabel(product.variant());
  measure(
      state, product.cost(), [&] { product.enqueue(); }, model.scheme.bound());
}

/// Time of each kernel in one traced pass, in microseconds; the variants of the products become the label.
void trace_kernels(benchmark::State& state, LayerForward& layer) {
  Trace& trace = *stream().context->trace();
  const Stream traced(*stream().context);
  trace.clear();
  layer.enqueue(traced);
  traced.finish();
  std::set<std::string> variants;
  for (const WorkSummary& row : trace.summary()) {
    state.counters["us:" + row.name] += benchmark::Counter(row.total_us);
    if (row.name == "grouped_gemm") variants.insert(row.variant);
  }
  trace.clear();
  state.SetLabel(fmt::format("{}", fmt::join(variants, ",")));
}

void run_layer(benchmark::State& state, const ModelCase& model, const RoutingSource& source, std::int64_t tokens) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes());
  LayerForward layer(model, source, tokens, whole_layers(model, layers));
  measure(
      state, layer.cost(), [&] { layer.enqueue(stream()); }, model.scheme.bound());
  trace_kernels(state, layer);
}

using Run = void (*)(benchmark::State&, const ModelCase&, const RoutingSource&, std::int64_t);

/// What goes wrong in one benchmark is its result, not the end of the others.
void guarded(benchmark::State& state, Run run, const ModelCase& model, const RoutingSource& source,
             std::int64_t tokens) {
  try {
    run(state, model, source, tokens);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

}  // namespace

std::string routed_name(const std::string& shape, const RoutingSource& source) {
  return shape + (source.replays() ? "+trace" : source.name == "uniform" ? "" : "+" + source.name);
}

void register_models(const ModelBenchmarks& wanted) {
  for (const std::string& shape : wanted.shapes)
    for (const std::string& scheme_name : wanted.schemes) {
      const ModelCase model = ModelCase::named(shape, wanted.experts, Scheme::named(scheme_name));
      const auto add = [&](const char* what, Run run) {
        for (const RoutingSource& source : wanted.routings)
          for (const std::int64_t tokens : wanted.tokens)
            benchmark::RegisterBenchmark(
                fmt::format("{}/{}/{}/T:{}/moecl", what, routed_name(model.shape_name, source), scheme_name, tokens)
                    .c_str(),
                [=](benchmark::State& state) { guarded(state, run, model, source, tokens); })
                ->UseManualTime()
                ->Unit(benchmark::kMicrosecond);
      };
      add("grouped_gemm", run_product);
      if (!model.scheme.quant.activations.quantized()) add("layer", run_layer);  // layers keep activations plain
    }
}

}  // namespace moecl::bench
