#include "bench/model_benchmarks.hpp"

#include <moecl/fused_moe.hpp>
#include <moecl/trace.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "bench/device_time.hpp"
#include "bench/model_operands.hpp"
#include "bench/product_check.hpp"
#include "bench/traced_kernels.hpp"

namespace moecl::bench {
namespace {

/// The layers of the current case. Those of another case, or a larger number of layers, replace them.
template <class Layers>
struct Resident {
  std::string of;
  std::shared_ptr<const ModelWeights> weights;
  Layers layers;
};

/// At most one of the two holds memory.
struct Residents {
  Resident<ExpertProduct::Layers> products;
  Resident<std::vector<MoeLayer>> whole;
};
Residents& residents() {
  static auto* both = new Residents;  // never destroyed, like the device
  return *both;
}

const Resident<ExpertProduct::Layers>& product_layers(const ModelCase& model, int count) {
  auto& products = residents().products;
  residents().whole = {};
  const std::string key = model.shape_name + "/" + model.scheme.name;
  if (products.of != key || static_cast<int>(products.layers.size()) < count) {
    products = {};
    products.weights = std::make_shared<ModelWeights>(model, false);
    products.layers = load_layers(model, *products.weights, count);
    products.of = key;
  }
  return products;
}

const std::vector<MoeLayer>& whole_layers(const ModelCase& model, int count, bool one_launch) {
  auto& [of, host, layers] = residents().whole;
  residents().products = {};
  const std::string key = model.shape_name + "/" + model.scheme.name + (one_launch ? "" : "/several launches");
  if (of != key || static_cast<int>(layers.size()) < count) {
    layers.clear();
    host = std::make_shared<ModelWeights>(model, true);
    MoeLayerOptions options;
    options.dtype = model.scheme.plain;
    options.activations = model.scheme.quant.activations;
    options.one_launch = one_launch;
    while (static_cast<int>(layers.size()) < count) layers.emplace_back(stream(), model.shape, host->weights, options);
    of = key;
  }
  return layers;
}

/// The type of a product's results: f32, or that of the scheme's plain numbers.
enum class Results { f32, plain };

void run_product(benchmark::State& state, const ModelCase& model, const RoutingSource& source, std::int64_t tokens,
                 Which which, Results results) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const double read = which == Which::gate_up ? 2.0 / 3 : 1.0 / 3;
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes() * read, *stream().device);
  const auto& resident = product_layers(model, layers);
  const DType out = results == Results::f32 ? DType::f32 : model.scheme.plain;
  ExpertProduct product(model, which, out, routing, resident.layers);
  product.enqueue();
  std::vector<std::byte> raw(product.out().view.size_bytes());
  read_blocking(stream(), product.out().view.buffer, raw.data(), raw.size());
  check_product(model, which, *resident.weights, routing, out, raw);
  state.SetLabel(product.variant());
  measure(
      state, product.cost(), [&] { product.enqueue(); }, model.scheme.bound());
}

/// Reports, from one traced pass, the time of each kernel and its rates. The label lists the variants of the products.
/// The pass stays in the trace under the name of its case.
void trace_kernels(benchmark::State& state, LayerForward& layer, const std::string& name) {
  Trace& trace = *stream().context->trace();
  const Stream traced(*stream().context);
  const auto before = static_cast<std::ptrdiff_t>(traced_kernels(trace).size());
  {
    const Trace::Span span(&trace, name);
    layer.enqueue(traced);
    traced.finish();
  }
  std::vector<TracedKernel> kernels = traced_kernels(trace);
  kernels.erase(kernels.begin(), kernels.begin() + before);
  std::map<std::string, TracedKernel> sums;
  std::map<std::string, double> calls;
  std::set<std::string> variants;
  for (const TracedKernel& kernel : kernels) {
    TracedKernel& sum = sums[kernel.name];
    sum.us += kernel.us, sum.bytes += kernel.bytes, sum.flops += kernel.flops;
    ++calls[kernel.name];
    if (kernel.name == "grouped_gemm" || kernel.name == "fused_moe") variants.insert(kernel.variant);
  }
  for (const auto& [kernel, sum] : sums) {
    state.counters["us:" + kernel] = sum.us;
    state.counters["calls:" + kernel] = calls[kernel];
    if (sum.us <= 0) continue;  // the driver's clock is too coarse
    if (sum.bytes > 0) state.counters["GB/s:" + kernel] = static_cast<double>(sum.bytes) / sum.us / 1e3;
    if (sum.flops > 0) state.counters["GFLOP/s:" + kernel] = static_cast<double>(sum.flops) / sum.us / 1e3;
  }
  state.SetLabel(fmt::format("{}", fmt::join(variants, ",")));
}

void run_layer(benchmark::State& state, const ModelCase& model, const RoutingSource& source, std::int64_t tokens,
               bool one_launch) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes(), *stream().device);
  LayerForward layer(model, source, tokens, whole_layers(model, layers, one_launch));
  measure(
      state, layer.cost(), [&] { layer.enqueue(stream()); }, model.scheme.bound());
  trace_kernels(state, layer, fmt::format("layer/{}/{}/T:{}", model.shape_name, model.scheme.name, tokens));
}

}  // namespace

void release_layers() { residents() = {}; }

void add_model_benchmark(const char* what, const std::string& implementation, const ModelCase& model,
                         const RoutingSource& source, std::int64_t tokens, std::function<void(benchmark::State&)> run) {
  const std::string routed = source.replays() ? "+trace" : source.name == "uniform" ? "" : "+" + source.name;
  const std::string name =
      fmt::format("{}/{}{}/{}/T:{}/{}", what, model.shape_name, routed, model.scheme.name, tokens, implementation);
  benchmark::RegisterBenchmark(name.c_str(),
                               [run = std::move(run)](benchmark::State& state) {
                                 try {
                                   run(state);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_models(const ModelBenchmarks& wanted) {
  for (const std::string& shape : wanted.shapes)
    for (const std::string& scheme : wanted.schemes) {
      const ModelCase model = ModelCase::named(shape, wanted.experts, Scheme::named(scheme));
      const auto add = [&](const char* what, const char* implementation, std::int64_t most_tokens, auto run) {
        for (const RoutingSource& source : wanted.routings)
          for (const std::int64_t tokens : wanted.tokens)
            if (tokens <= most_tokens)
              add_model_benchmark(what, implementation, model, source, tokens,
                                  [=](benchmark::State& state) { run(state, model, source, tokens); });
      };
      const auto layer = [](bool one_launch) {
        return [one_launch](benchmark::State& state, const ModelCase& of, const RoutingSource& source,
                            std::int64_t tokens) { run_layer(state, of, source, tokens, one_launch); };
      };
      const auto product = [](Which which, Results results) {
        return [=](benchmark::State& state, const ModelCase& of, const RoutingSource& source, std::int64_t tokens) {
          run_product(state, of, source, tokens, which, results);
        };
      };
      constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
      add("grouped_gemm", "moecl", any, product(Which::gate_up, Results::f32));
      add("gate_up", "moecl", any, product(Which::gate_up, Results::plain));
      add("down", "moecl", any, product(Which::down, Results::plain));
      if (wanted.layers) add("layer", "moecl", any, layer(true));
      if (wanted.layers && wanted.several_launches)
        add("layer", "moecl_several_launches", fused_moe::worthwhile_tokens, layer(false));
    }
}

nlohmann::ordered_json shape_facts(const ModelBenchmarks& wanted) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  for (const std::string& name : wanted.shapes) {
    const ModelCase model = ModelCase::named(name, wanted.experts, {});
    const MoeShape& shape = model.shape;
    facts[model.shape_name] = {{"hidden", shape.hidden},
                               {"intermediate", shape.intermediate},
                               {"experts", shape.experts},
                               {"top_k", shape.router.top_k}};
  }
  return facts;
}

}  // namespace moecl::bench
