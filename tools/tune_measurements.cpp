#include "tools/tune_measurements.hpp"

#include <moecl/dense_backend.hpp>
#include <moecl/error.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "bench/dense_products.hpp"
#include "bench/device_time.hpp"
#include "bench/model_benchmarks.hpp"
#include "bench/results.hpp"
#include "tests/cases/self_test.hpp"
#include "tools/measure_options.hpp"

namespace moecl::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The speedup that another value needs over the default, so that noise decides nothing.
constexpr double least_gain = 1.05;

const DeviceCaps& caps() { return bench::stream().device->caps; }
bool on_cpu() { return caps().type == DeviceType::cpu; }

/// Runs the benchmarks whose names start with `begin` and one of `sizes`, the smallest first, with these choices.
/// Leaves out those with wrong results. Returns nothing if the time was over.
std::optional<std::vector<bench::Measured>> measured(const std::string& begin, const std::vector<std::int64_t>& sizes,
                                                     const std::vector<TunedChoice>& choices, Deadline& deadline) {
  std::vector<bench::Measured> all;
  for (const std::int64_t size : sizes) {
    if (!deadline.begin()) return {};
    const std::string benchmarks = fmt::format("^{}:{}/", begin, size);
    bench::use(Tuning{choices, {}});
    bench::Collector collector(nullptr);
    std::ostringstream messages;
    collector.SetErrorStream(&messages);
    benchmark::RunSpecifiedBenchmarks(&collector, benchmarks);
    bench::use(Tuning());
    for (bench::Measured& one : bench::measured(collector.document(Json::object()), benchmarks))
      all.push_back(std::move(one));
  }
  return all;
}

/// The geometric mean of the times.
double seconds_of(const std::vector<bench::Measured>& all) {
  double logarithms = 0;
  for (const bench::Measured& one : all) logarithms += std::log(one.median());
  return all.empty() ? std::numeric_limits<double>::infinity() : std::exp(logarithms / static_cast<double>(all.size()));
}

// --- Lanes -----------------------------------------------------------------------------------------------------------

/// How an operator is measured, with few and with many rows, and checked against the oracle.
struct LanesCase {
  const char* op;
  const char* benchmarks;
  std::initializer_list<std::int64_t> sizes;
  std::vector<test::SelfTestResult> (*self_test)(StreamView stream);
};
constexpr LanesCase lanes_cases[] = {
    {"gating_top_k", "gating_top_k/softmax/E:128/K:8/T", {16, 512}, test::self_test_gating_top_k},
    {"gather_rows", "gather_rows/bf16_to_f32/H:2048/T", {16, 512}, test::self_test_gather_rows},
    {"quantize_groups", "quantize_groups/bf16/i8/token/N", {1, 128, 4096}, test::self_test_quantize_groups},
    {"gated_activation", "gated_activation/silu/f32/I:768/R", {128, 4096}, test::self_test_gated_activation},
    {"combine", "combine/f32_to_bf16/K:8/H:2048/T", {16, 512}, test::self_test_combine},
    {"quantize_rows", "quantize_rows/bf16/H:2048/N", {128, 4096}, test::self_test_quantize_rows}};

bool is_right(const LanesCase& of, const TunedChoice& choice) {
  bench::use(Tuning{{choice}, {}});
  const std::vector<test::SelfTestResult> results = of.self_test(bench::stream());
  bench::use(Tuning());
  const bool right =
      std::all_of(results.begin(), results.end(), [](const test::SelfTestResult& result) { return result.ok(); });
  if (!right) fmt::print("{}: {} gives wrong results and is left out\n", choice.name, choice.value);
  return right;
}

/// The lanes to try instead of the default.
std::vector<std::int32_t> lanes_to_try(const std::string& op) {
  const auto& all = tuning::row_operators();
  const auto known =
      std::find_if(all.begin(), all.end(), [&](const tuning::RowOperator& row) { return op == row.name; });
  if (on_cpu()) return known->shares_on_cpu ? std::vector{4, 16} : std::vector<std::int32_t>();
  std::vector<std::int32_t> lanes = {32, 64, 128, 256};
  lanes.erase(
      std::remove_if(lanes.begin(), lanes.end(),
                     [](std::int32_t some) { return static_cast<std::size_t>(some) > caps().max_work_group_size; }),
      lanes.end());
  return lanes;
}

std::string measure_lanes(const LanesCase& of, Deadline& deadline, Json& entry) {
  const auto by_default = measured(of.benchmarks, of.sizes, {}, deadline);
  if (!by_default) return {};
  const double usual = seconds_of(*by_default);
  double least = usual / least_gain;
  std::optional<std::int32_t> best;
  const std::string name = tuning::lanes_name(of.op);
  for (const std::int32_t lanes : lanes_to_try(of.op)) {
    if (!deadline.begin()) return {};
    const TunedChoice choice{name, lanes, ""};
    if (!is_right(of, choice)) continue;
    const auto so = measured(of.benchmarks, of.sizes, {choice}, deadline);
    if (!so) return {};
    const double seconds = seconds_of(*so);
    if (seconds < least) best = lanes, least = seconds;
  }
  entry["choices"].erase(name);
  if (!best) return "the default is the fastest";
  entry["choices"][name] = *best;
  return fmt::format("{}, {:.2f} times as fast as the default", *best, usual / least);
}

// --- Variants of the grouped product ---------------------------------------------------------------------------------

constexpr const char* model_name = "olmoe-1b-7b";
std::int32_t experts() { return on_cpu() ? 8 : 64; }
/// Rows per expert to try; on CPUs one variant serves all.
std::vector<std::int64_t> rows_to_try() {
  return on_cpu() ? std::vector<std::int64_t>{1, 16, 128} : std::vector<std::int64_t>{1, 4, 8, 16, 32, 64, 128, 256};
}
std::int64_t tokens_of(std::int64_t rows) { return rows * experts() / 8; }
const char* scheme_of(DType a, CodeType weights) {
  return weights != CodeType::i8 ? name(a) : a == DType::i8 ? "int8_w8a8" : "int8_w8a16";
}

struct VariantTimes {
  std::string variant;
  std::map<std::int64_t, double> seconds;  ///< by rows per expert, where the variant ran
  double mean;
};

/// Times each variant for all rows; leaves out variants that cannot run or are wrong. Nothing if the time was over.
std::optional<std::vector<VariantTimes>> time_variants(DType a, CodeType weights, Deadline& deadline) {
  const std::vector<grouped_gemm::Range> ranges = grouped_gemm::ranges(a, weights, *bench::stream().device);
  std::vector<std::int64_t> tokens;
  for (const std::int64_t rows : rows_to_try()) tokens.push_back(tokens_of(rows));
  std::vector<VariantTimes> all;
  for (const grouped_gemm::Range& range : ranges) {
    std::vector<TunedChoice> choices;
    for (const grouped_gemm::Range& other : ranges)
      choices.push_back({tuning::most_rows_name(a, weights, other.variant),
                         std::string(other.variant) == range.variant ? grouped_gemm::any_rows : 0, ""});
    auto ran = measured(fmt::format("grouped_gemm/.*/{}/T", scheme_of(a, weights)), tokens, choices, deadline);
    if (!ran) return {};
    ran->erase(std::remove_if(ran->begin(), ran->end(),
                              [&](const bench::Measured& one) { return one.label != range.variant; }),
               ran->end());
    VariantTimes times{range.variant, {}, seconds_of(*ran)};
    for (const std::int64_t rows : rows_to_try())
      for (const bench::Measured& one : *ran)
        if (one.name.find(fmt::format("/T:{}/", tokens_of(rows))) != std::string::npos)
          times.seconds[rows] = one.median();
    if (!ran->empty()) all.push_back(std::move(times));
  }
  return all;
}

/// Gives each variant the rows up to which no later variant is faster; the last variant takes the others.
std::vector<std::int64_t> most_rows_by_rows(const std::vector<VariantTimes>& all) {
  std::vector<std::int64_t> most(all.size(), 0);
  const std::vector<std::int64_t> rows = rows_to_try();
  std::size_t next = 0;
  const auto seconds = [&](const VariantTimes& of) {
    const auto found = of.seconds.find(rows[next]);
    return found != of.seconds.end() ? found->second : std::numeric_limits<double>::infinity();
  };
  for (std::size_t v = 0; v + 1 < all.size(); ++v)
    for (;
         next < rows.size() && std::all_of(all.begin() + static_cast<std::ptrdiff_t>(v) + 1, all.end(),
                                           [&](const VariantTimes& other) { return seconds(all[v]) < seconds(other); });
         ++next)
      most[v] = next + 1 == rows.size() ? grouped_gemm::any_rows : rows[next];
  most.back() = grouped_gemm::any_rows;
  return most;
}

/// Takes one variant for all rows: the first, unless another is faster.
std::vector<std::int64_t> most_rows_for_all(const std::vector<VariantTimes>& all) {
  std::size_t best = 0;
  for (std::size_t v = 1; v < all.size(); ++v)
    if (all[v].mean * (best == 0 ? least_gain : 1) < all[best].mean) best = v;
  std::vector<std::int64_t> most(all.size(), 0);
  most[best] = grouped_gemm::any_rows;
  return most;
}

std::string measure_variants(DType a, CodeType weights, Deadline& deadline, Json& entry) {
  const auto all = time_variants(a, weights, deadline);
  if (!all) return {};
  if (all->empty()) return "no variant ran and was right";
  const auto most = grouped_gemm::rows_choose(caps()) ? most_rows_by_rows(*all) : most_rows_for_all(*all);
  std::vector<std::string> said;
  for (std::size_t v = 0; v < most.size(); ++v) {
    const Json value = most[v] == grouped_gemm::any_rows ? Json("any") : Json(most[v]);
    entry["choices"][tuning::most_rows_name(a, weights, (*all)[v].variant)] = value;
    said.push_back(fmt::format("{} {}", (*all)[v].variant, value.dump()));
  }
  return fmt::format("{}", fmt::join(said, ", "));
}

// --- Dense products --------------------------------------------------------------------------------------------------

using dense_backend::Backend;

/// Router, shared experts, and experts in the batched layout; shorter ones first, so that a little time gives much.
constexpr bench::DenseShape dense_shapes[] = {{1, 1, 128, 2048},   {8, 1, 1536, 2048},   {1, 16, 128, 2048},
                                              {8, 16, 1536, 2048}, {1, 16, 2048, 2816},  {1, 128, 128, 2048},
                                              {1, 1, 5120, 3584},  {8, 128, 1536, 2048}, {1, 128, 2048, 2816}};

/// The rate by the median of several calls. Errors: device_error  the results are wrong
double gflops(const bench::DenseProduct& product, Backend backend) {
  if (const double error = product.error(); !(error < 1e-5))
    throw Error(ErrorCode::device_error,
                fmt::format("{} gives wrong products: an error of {:.1e}, so nothing is written",
                            dense_backend::name(backend), error));
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto start = Deadline::Clock::now();
    product.enqueue();
    bench::stream().finish();
    seconds.push_back(std::chrono::duration<double>(Deadline::Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(product.cost().flops) / 1e9 / seconds[2];
}

std::string measure_dense(const bench::DenseShape& shape, Deadline& deadline, Json& entry) {
  if (!deadline.begin()) return {};
  Json product;
  if (shape.b > 1) product["b"] = shape.b;
  product.update({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
  Json& list = entry[shape.b > 1 ? "batched" : "dense"];
  const auto is_same = [&](const Json& other) {
    return other["m"] == shape.m && other["n"] == shape.n && other["k"] == shape.k;
  };
  list.erase(std::remove_if(list.begin(), list.end(), is_same), list.end());
  for (const Backend backend : {Backend::grouped_gemm, Backend::clblast})
    product[fmt::format("{}_gflops", dense_backend::name(backend))] =
        gflops(bench::DenseProduct(shape, backend), backend);
  list.push_back(product);
  return product.dump();
}

}  // namespace

std::vector<Measurement> tuning_measurements() {
  MeasureOptions short_ones;
  short_ones.min_time = 0.05;
  short_ones.set_flags();
  bench::ModelBenchmarks products;
  products.shapes = {model_name};
  products.experts = experts();
  products.schemes.clear();
  products.tokens.clear();
  products.layers = false;
  products.routings = {bench::RoutingSource::named("uniform", 1)};
  for (const std::int64_t rows : rows_to_try()) products.tokens.push_back(tokens_of(rows));

  std::vector<Measurement> all;
  for (const auto& [a, weights] : tuning::operands()) {
    products.schemes.emplace_back(scheme_of(a, weights));
    all.push_back({fmt::format("grouped_gemm/{}/{}", name(a), name(weights)), "operators",
                   [a = a, weights = weights](Deadline& deadline, Json& entry) {
                     return measure_variants(a, weights, deadline, entry);
                   }});
  }
  bench::register_models(products);
  for (const LanesCase& of : lanes_cases)
    if (!lanes_to_try(of.op).empty())
      all.push_back({tuning::lanes_name(of.op), "operators",
                     [&of](Deadline& deadline, Json& entry) { return measure_lanes(of, deadline, entry); }});
  for (const bench::DenseShape& shape : dense_shapes)
    all.push_back({shape.b > 1 ? "batched products" : "dense products", "dense_backend",
                   [&shape](Deadline& deadline, Json& entry) { return measure_dense(shape, deadline, entry); }});
  return all;
}

}  // namespace moecl::cli
