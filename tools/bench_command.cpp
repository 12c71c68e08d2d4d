#include <moecl/error.hpp>
#include <moecl/model_shapes.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

#include "bench/baseline.hpp"
#include "bench/device_time.hpp"
#include "bench/model_benchmarks.hpp"
#include "bench/model_case.hpp"
#include "bench/results.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

struct BenchOptions {
  DeviceOptions device;
  std::string filter = ".", baseline;
  std::vector<std::string> shapes = {"qwen3-30b-a3b"}, schemes = {"f32", "bf16", "int8_w8a8"}, routing = {"uniform"};
  std::vector<std::int64_t> tokens = {1, 4, 16, 64, 128, 512, 2048};
  std::int32_t experts = 0;
  std::uint64_t seed = 0;
  int repetitions = 1;
  double min_time = 0.3;
  bool list = false, json = false, quick = false;
};

/// The models of the house's benchmarks.
const std::vector<std::string>& all_shapes() {
  static const std::vector<std::string> names = {"qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b",
                                                 "olmoe-1b-7b"};
  return names;
}

/// Sets what Google Benchmark takes as flags.
void set_flags(const BenchOptions& options) {
  static char program[] = "moecl";  // kept by the library
  std::vector<std::string> flags = {fmt::format("--benchmark_min_time={}", options.min_time),
                                    fmt::format("--benchmark_repetitions={}", options.repetitions)};
  if (options.list) flags.emplace_back("--benchmark_list_tests=true");
  std::vector<char*> arguments = {program};
  for (std::string& flag : flags) arguments.push_back(flag.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
}

void register_wanted(const BenchOptions& options) {
  bench::ModelBenchmarks wanted;
  wanted.shapes = options.shapes == std::vector<std::string>{"all"} ? all_shapes() : options.shapes;
  wanted.schemes = options.schemes;
  wanted.tokens = options.tokens;
  wanted.experts = options.experts;
  for (const std::string& name : options.routing)
    wanted.routings.push_back(bench::RoutingSource::named(name, options.seed));
  bench::register_models(wanted);
}

/// Those that match, by the names they have in results.
void print_names(const BenchOptions& options) {
  std::ostringstream names;
  bench::Collector collector(nullptr);
  collector.SetOutputStream(&names);
  collector.SetErrorStream(&names);
  benchmark::RunSpecifiedBenchmarks(&collector, options.filter);
  std::istringstream lines(names.str());
  for (std::string name; std::getline(lines, name);) fmt::print("{}\n", name.substr(0, name.find("/manual_time")));
}

/// A line for each benchmark that changed. @return  how many became slower
std::size_t print_changes(std::FILE* to, const std::vector<bench::Change>& changes, const std::string& origin) {
  std::size_t regressions = 0;
  std::vector<Row> rows = {{"benchmark", "before us", "now us", "longer by", "noise", "result"}};
  for (const bench::Change& change : changes) {
    regressions += change.regressed() ? 1 : 0;
    rows.push_back({change.name, fmt::format("{:.1f}", change.before * 1e6), fmt::format("{:.1f}", change.now * 1e6),
                    fmt::format("{:+.1f} %", 100 * change.longer()), fmt::format("{:.1f} %", 100 * change.noise),
                    change.regressed() ? "SLOWER" : "ok"});
  }
  fmt::print(to, "\n{}against {}: {} of {} benchmarks became slower by more than the noise\n", table(rows), origin,
             regressions, changes.size());
  return regressions;
}

nlohmann::ordered_json read_document(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw Error(ErrorCode::io_error, fmt::format("{}: cannot be read", path));
  const nlohmann::ordered_json document = nlohmann::ordered_json::parse(text.str(), nullptr, false);
  bench::measured(document, path);  // said before an hour of measuring
  return document;
}

int run(const BenchOptions& options) {
  const nlohmann::ordered_json before = options.baseline.empty() ? nullptr : read_document(options.baseline);
  register_wanted(options);
  set_flags(options);
  if (options.list) return print_names(options), done;
  bench::use(options.device.open());
  nlohmann::ordered_json facts = bench::context_facts();
  facts["seed"] = options.seed;
  if (!before.is_null()) bench::expect_comparable(before, options.baseline, facts);
  bench::Collector collector(options.json ? nullptr : stdout, bench::heading(facts));
  std::ostringstream messages;
  collector.SetErrorStream(&messages);
  if (benchmark::RunSpecifiedBenchmarks(&collector, options.filter) == 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("--filter {}: no benchmark of that name", options.filter));
  if (bench::slow_now()) facts["slow_mode"] = true;
  if (facts["slow_mode"] == true && !options.json)
    fmt::print(
        "\nSLOW MODE: all compute units together are far from as many times one, so something shares the cores; "
        "these times say little\n");
  const nlohmann::ordered_json document = collector.document(facts);
  if (options.json) std::cout << document.dump(1) << '\n';
  if (!before.is_null() && print_changes(options.json ? stderr : stdout,
                                         bench::compare(before, options.baseline, document), options.baseline) > 0)
    return check_failed;
  return collector.failed() ? check_failed : done;
}

std::string shape_names() {
  std::string names;
  for (const ModelShape& shape : model_shapes()) names += fmt::format("{}, ", shape.name);
  return names + "or all: those of the house's benchmarks";
}

}  // namespace

void add_bench(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure the operators, and the layers of model shapes");
  options->device.add_to(*command);
  command->add_option("--filter", options->filter, "run what this regular expression matches a part of")
      ->type_name("REGEX");
  command->add_flag("--list", options->list, "print the names that would run");
  auto* shapes = command->add_option("--shapes", options->shapes, "model shapes: " + shape_names())
                     ->delimiter(',')
                     ->type_name("A,B,...")
                     ->capture_default_str();
  auto* schemes =
      command->add_option("--schemes", options->schemes, "how they are stored: " + bench::known_bench_schemes())
          ->delimiter(',')
          ->type_name("A,B,...")
          ->capture_default_str();
  auto* tokens = command->add_option("--tokens", options->tokens, "tokens of a call")
                     ->delimiter(',')
                     ->type_name("A,B,...")
                     ->check(whole_number(1, 1 << 20))
                     ->capture_default_str();
  command->add_option("--experts", options->experts, "a slice of the experts (default: 16 of deepseek-v3, else all)")
      ->check(whole_number(1));
  command
      ->add_option("--routing", options->routing,
                   "where tokens go: uniform, zipf, or a file that `moecl run --output` wrote")
      ->delimiter(',')
      ->type_name("A,B,...")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "seed of the routing")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  auto* repetitions =
      command
          ->add_option("--repetitions", options->repetitions, "times each is measured (default: 1, with --baseline 5)")
          ->check(whole_number(1));
  auto* min_time = command->add_option("--min-time", options->min_time, "least seconds of one measurement")
                       ->check(CLI::Range(0.001, 3600.0))
                       ->capture_default_str();
  command->add_flag("--quick", options->quick, "a choice that ends within a minute on two cores");
  auto* baseline = command
                       ->add_option("--baseline", options->baseline,
                                    "fail if a benchmark takes longer than in this result of --json, beyond the noise")
                       ->type_name("OLD.json");
  command->add_flag("--json", options->json, "results as Google Benchmark's JSON");
  command->callback([=, &outcome] {
    if (options->quick) {
      if (command->get_option("--filter")->count() == 0) options->filter = "^(grouped_gemm|layer)/";
      if (shapes->count() == 0) options->shapes = {"olmoe-1b-7b"};
      if (schemes->count() == 0) options->schemes = {"bf16", "int8_w8a8"};
      if (tokens->count() == 0) options->tokens = {1, 16, 128};
      if (min_time->count() == 0) options->min_time = 0.05;
    }
    if (baseline->count() != 0 && repetitions->count() == 0) options->repetitions = 5;
    outcome = run(*options);
  });
}

}  // namespace moecl::cli
