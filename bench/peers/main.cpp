// Compares moecl, oneDNN, OpenBLAS and ggml in one process: the experts' first product, and whole layers. Peers get
// their weights beforehand, in their preferred form. Their products get gathered rows and apply no scales, while moecl
// gathers and scales. Their layers get the chosen experts, while moecl also has a router.
#include <moecl/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <numeric>

#include "bench/device_time.hpp"
#include "bench/model_benchmarks.hpp"
#include "bench/peers/layer.hpp"
#include "bench/peers/peer.hpp"
#include "bench/product_check.hpp"
#include "bench/report_page.hpp"
#include "bench/results.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/oracle/weight_matrix.hpp"
#include "tools/measure_options.hpp"
#include "tools/table.hpp"

namespace moecl::bench {
namespace {

/// The matrices of one expert, gate above up, as the numbers that a peer multiplies: codes without their scales.
std::vector<std::byte> stacked_weights(const ExpertMatrices& expert) {
  std::vector<std::byte> all;
  for (const WeightMatrix* matrix : {&expert.gate, &expert.up}) {
    const std::byte* begin = (matrix->quantized() ? matrix->codes.data : matrix->plain.data).memory();
    const std::size_t element = matrix->quantized() ? 1 : size_bytes(matrix->plain.dtype);
    all.insert(all.end(), begin, begin + static_cast<std::size_t>(matrix->rows() * matrix->columns()) * element);
  }
  return all;
}

constexpr const char *first_product = "grouped_gemm", *whole_layer = "layer";

/// A peer with the weights of some layers of a case. Only one peer holds memory at a time.
struct Loaded {
  std::string of;
  int layers = 0;
  std::unique_ptr<ModelWeights> host;
  std::unique_ptr<Peer> peer;
  std::unique_ptr<PeerLayer> layer;  ///< or this
};
Loaded& loaded() {
  static Loaded one;
  return one;
}

Arithmetic arithmetic_of(const Scheme& scheme) { return scheme.bound().arithmetic; }

Loaded& load(const char* what, const std::string& name, const ModelCase& model, int layers, std::int64_t rows) {
  Loaded& now = loaded();
  const std::string key = fmt::format("{}/{}/{}/{}", what, name, model.shape_name, model.scheme.name);
  if (now.of == key && now.layers >= layers) return now;
  now = {};
  release_layers();
  const auto make = [&](std::int64_t n, std::int64_t k) {
    return name == "onednn" ? onednn_peer(arithmetic_of(model.scheme), n, k, rows) : openblas_peer(n, k);
  };
  const bool whole = what == whole_layer;
  now.host = std::make_unique<ModelWeights>(model, whole);
  if (whole) {
#ifdef MOECL_GGML
    if (name == "ggml") now.layer = ggml_layer(model, now.host->weights, layers);
#endif
    if (!now.layer) now.layer = layer_of_products(model, now.host->weights, layers, make);
  } else {
    now.peer = make(2 * model.shape.intermediate, model.shape.hidden);
    for (int layer = 0; layer < layers; ++layer)
      for (const ExpertMatrices& expert : now.host->weights.experts)
        now.peer->add_expert(stacked_weights(expert).data());
  }
  now.of = key, now.layers = layers;
  return now;
}

/// The output as moecl writes it: i32 sums of (a + 128) x w become sums of a x w, scaled.
std::vector<std::byte> scaled_output(const ModelCase& model, const ModelWeights& weights,
                                     const std::vector<std::byte>& out) {
  if (arithmetic_of(model.scheme) != Arithmetic::int8) return out;
  std::vector<std::byte> values(out.size());
  const auto n = static_cast<std::size_t>(2 * model.shape.intermediate),
             k = static_cast<std::size_t>(model.shape.hidden);
  const ExpertMatrices& any = weights.weights.experts.front();  // quantized ones are all the same
  const std::vector<std::byte> codes = stacked_weights(any);
  std::vector<double> scale(n), offset(n);
  for (std::size_t column = 0; column < n; ++column) {
    const bool up = column >= n / 2;
    const WeightMatrix& matrix = up ? any.up : any.gate;
    double sum = 0;
    for (std::size_t i = 0; i < k; ++i) sum += static_cast<std::int8_t>(codes[column * k + i]);
    offset[column] = 128 * sum;
    scale[column] = test::matrix_element(matrix.scale, static_cast<std::int64_t>(up ? column - n / 2 : column), 0) *
                    static_cast<double>(matrix.global_scale) * activation_scale(model);
  }
  for (std::size_t i = 0; i < values.size() / 4; ++i) {
    std::int32_t sum = 0;
    std::memcpy(&sum, out.data() + 4 * i, 4);
    const auto value = static_cast<float>((sum - offset[i % n]) * scale[i % n]);
    std::memcpy(values.data() + 4 * i, &value, 4);
  }
  return values;
}

void run_peer(benchmark::State& state, const std::string& name, const ModelCase& model, const RoutingSource& source,
              std::int64_t tokens) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes() * 2 / 3, *stream().device);
  const std::int64_t slots = tokens * routing.top_k;
  Loaded& now = load(first_product, name, model, layers, std::max<std::int64_t>(slots / model.shape.experts, 1));
  // Rows in expert order. int8 activations are offset by 128, as u8: oneDNN is fastest with these.
  const bool int8 = arithmetic_of(model.scheme) == Arithmetic::int8;
  const std::vector<std::byte> tokens_of_a = product_activations(model, ProductShape(model, Which::gate_up, routing));
  const std::size_t width = tokens_of_a.size() / static_cast<std::size_t>(tokens);
  std::vector<std::byte> a;
  for (const std::int32_t slot : routing.sorted_slots) {
    const auto* row = tokens_of_a.data() + static_cast<std::size_t>(slot / routing.top_k) * width;
    a.insert(a.end(), row, row + width);
  }
  if (int8)
    for (std::byte& value : a) value ^= std::byte{0x80};
  const auto row_bytes = static_cast<std::size_t>(2 * model.shape.intermediate) * 4;
  std::vector<std::byte> out(static_cast<std::size_t>(slots) * row_bytes);
  std::size_t turn = 0;
  const auto multiply = [&] {
    const std::size_t layer = turn++ % static_cast<std::size_t>(layers);
    std::size_t begin = 0;
    for (std::size_t expert = 0; expert < routing.row_ends.size(); ++expert) {
      const auto end = static_cast<std::size_t>(routing.row_ends[expert]);
      if (end > begin)
        now.peer->multiply(layer * routing.row_ends.size() + expert, static_cast<std::int64_t>(end - begin),
                           a.data() + begin * width, out.data() + begin * row_bytes);
      begin = end;
    }
  };
  multiply();
  check_product(model, Which::gate_up, *now.host, routing, DType::f32, scaled_output(model, *now.host, out));
  const double expert = 2.0 * static_cast<double>(model.shape.intermediate * model.shape.hidden);
  OperatorCost cost;
  cost.flops = static_cast<std::uint64_t>(2 * expert * static_cast<double>(slots));
  cost.bytes = static_cast<std::uint64_t>(static_cast<double>(routing.active_experts) * model.expert_bytes() * 2 / 3) +
               tokens_of_a.size() + out.size();
  measure(state, cost, multiply, model.scheme.bound());
}

void run_peer_layer(benchmark::State& state, const std::string& name, const ModelCase& model,
                    const RoutingSource& source, std::int64_t tokens) {
  const Routing routing = source.route(tokens, model.shape.router.top_k, model.shape.experts);
  const int layers = model.layers_out_of_cache(routing.active_experts, model.expert_bytes(), *stream().device);
  const std::int64_t slots = tokens * routing.top_k;
  Loaded& now = load(whole_layer, name, model, layers, std::max<std::int64_t>(slots / model.shape.experts, 1));
  const std::vector<std::byte> x = repeated_values(model.scheme.plain, tokens * model.shape.hidden, 1);
  now.layer->expect(routing, x);
  now.layer->forward(0);

  const auto* bytes = reinterpret_cast<const unsigned char*>(x.data());
  const std::vector<double> values = test::decode(model.scheme.plain, {bytes, bytes + x.size()});
  const std::int64_t token = tokens - 1, column = model.shape.hidden / 2;
  const double expected = layer_element(model, now.layer->weights(), routing, values, token, column);
  const double got = now.layer->out()[static_cast<std::size_t>(token * model.shape.hidden + column)];
  if (!(std::abs(got - expected) <= 2e-2 * std::max(std::abs(expected), 0.1)))
    throw Error(ErrorCode::device_error, fmt::format("wrong result: element [{}, {}] of the layer is {}, expected {}",
                                                     token, column, got, expected));
  std::size_t turn = 0;
  OperatorCost cost;
  const double expert = 3.0 * static_cast<double>(model.shape.intermediate * model.shape.hidden);
  cost.flops = static_cast<std::uint64_t>(2 * expert * static_cast<double>(slots));
  cost.bytes =
      static_cast<std::uint64_t>(static_cast<double>(routing.active_experts) * model.expert_bytes()) + x.size();
  measure(
      state, cost, [&] { now.layer->forward(turn++ % static_cast<std::size_t>(layers)); }, model.scheme.bound());
}

/// The schemes of a peer's products and layers.
struct PeerSchemes {
  const char* name;
  std::set<std::string> products, layers;
};
std::vector<PeerSchemes> peers() {
  return {
      {"onednn", {"f32", "bf16", "int8_w8a8"}, {"f32", "bf16"}},
      {"openblas", {"f32"}, {"f32"}},
#ifdef MOECL_GGML
      {"ggml", {}, ggml_schemes()},
#endif
  };
}

void register_peers(const ModelBenchmarks& wanted) {
  for (const std::string& shape : wanted.shapes)
    for (const std::string& scheme : wanted.schemes) {
      const ModelCase model = ModelCase::named(shape, wanted.experts, Scheme::named(scheme));
      for (const PeerSchemes& peer : peers()) {
        const auto add = [&](const char* what, const auto& run_case) {
          for (const RoutingSource& source : wanted.routings)
            for (const std::int64_t tokens : wanted.tokens)
              add_model_benchmark(what, peer.name, model, source, tokens,
                                  [=, name = std::string(peer.name)](benchmark::State& state) {
                                    run_case(state, name, model, source, tokens);
                                  });
        };
        if (peer.products.count(scheme) != 0) add(first_product, run_peer);
        if (peer.layers.count(scheme) != 0) add(whole_layer, run_peer_layer);
      }
    }
}

/// Prints a row per case: the times, and how much longer the best peer takes than moecl.
void print_ratios(const std::vector<Measured>& all) {
  std::map<std::string, std::map<std::string, double>> products;
  for (const Measured& one : all) {
    const std::size_t slash = one.name.rfind('/');
    products[one.name.substr(0, slash)][one.name.substr(slash + 1)] = one.median();
  }
  std::vector<double> logs;
  std::vector<std::string> implementations = {"moecl"};
  for (const PeerSchemes& peer : peers()) implementations.emplace_back(peer.name);
  std::vector<cli::Row> rows(1);
  rows[0] = {"case"};
  for (const std::string& name : implementations) rows[0].push_back(name + " us");
  rows[0].push_back("best peer / moecl");
  for (const auto& [product, times] : products) {
    double best = INFINITY;
    cli::Row row = {product};
    for (const std::string& name : implementations) {
      const auto found = times.find(name);
      row.push_back(found == times.end() ? "-" : fmt::format("{:.1f}", found->second * 1e6));
      if (found != times.end() && name != "moecl") best = std::min(best, found->second);
    }
    const bool both = times.count("moecl") != 0 && times.size() > 1;
    if (both) logs.push_back(std::log(best / times.at("moecl")));
    row.push_back(both ? fmt::format("{:.2f}", best / times.at("moecl")) : "-");
    rows.push_back(row);
  }
  fmt::print("\n{}", cli::table(rows));
  if (!logs.empty())
    fmt::print("geometric mean {:.2f}\n",
               std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size())));
}

int run(const cli::MeasureOptions& options) {
  const ModelBenchmarks wanted = options.models();
  use(options.device.open());
  register_models(wanted);
  register_peers(wanted);
  options.set_flags();
  nlohmann::ordered_json facts = context_facts();
  facts["shapes"] = shape_facts(wanted);
  Collector collector(options.json ? nullptr : stdout, heading(facts));
  benchmark::RunSpecifiedBenchmarks(&collector, options.filter == "." ? "^(grouped_gemm|layer)/.*T:" : options.filter);
  facts["slow_mode"] = facts["slow_mode"] == true || slow_now();
  const nlohmann::ordered_json document = collector.document(facts);
  if (!options.report.empty()) write_report(options.report, {{"moecl", document}});
  if (options.json)
    std::cout << document.dump(1) << '\n';
  else
    print_ratios(measured(document, "this run")), fmt::print("{}", slow_note(facts));
  return collector.failed() ? 1 : 0;
}

}  // namespace
}  // namespace moecl::bench

int main(int argc, char** argv) {
  CLI::App app("moecl_bench_peers: the experts' first product and layers by moecl, oneDNN, OpenBLAS and ggml");
  moecl::cli::MeasureOptions options;
  options.add_to(app);
  CLI11_PARSE(app, argc, argv);
  try {
    return moecl::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moecl_bench_peers: {}\n", error.what());
    return 2;
  }
}
