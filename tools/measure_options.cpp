#include "tools/measure_options.hpp"

#include <moecl/model_shapes.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <regex>

#include "bench/model_case.hpp"
#include "tools/commands.hpp"

namespace moecl::cli {
namespace {

/// The model shapes of the project's own benchmarks.
const std::vector<std::string>& all_shapes() {
  static const std::vector<std::string> names = {"qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b",
                                                 "olmoe-1b-7b"};
  return names;
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names = {"all"};
  for (const ModelShape& shape : model_shapes()) names.emplace_back(shape.name);
  return names;
}

/// Accepts regular expressions as Google Benchmark reads them.
CLI::Validator regular_expression() {
  return {[](const std::string& text) -> std::string {
            try {
              const std::regex expression(text, std::regex::extended);
              return "";
            } catch (const std::regex_error& error) {
              return fmt::format("expected a regular expression, got {}: {}", text, error.what());
            }
          },
          ""};
}

}  // namespace

void MeasureOptions::add_to(CLI::App& command) {
  device.add_to(command);
  command.add_option("--filter", filter, "run what this regular expression matches a part of")
      ->check(regular_expression())
      ->type_name("REGEX");
  command.add_flag("--list", list, "print the names that would run");
  command.add_option("--shapes", shapes, "model shapes; all: those of the house's benchmarks")
      ->delimiter(',')
      ->check(one_of(shape_names()))
      ->type_name("A,B,...")
      ->capture_default_str();
  command.add_option("--schemes", schemes, "how they are stored")
      ->delimiter(',')
      ->check(one_of(bench::known_bench_schemes()))
      ->type_name("A,B,...")
      ->capture_default_str();
  command.add_option("--tokens", tokens, "tokens of a call")
      ->delimiter(',')
      ->type_name("A,B,...")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--experts", experts, "a slice of the experts (default: 16 of deepseek-v3, else all)")
      ->check(whole_number(1));
  command
      .add_option("--routing", routing,
                  "where tokens go: uniform, zipf, or a file of `moecl run --output` or `--record`")
      ->delimiter(',')
      ->type_name("A,B,...")
      ->capture_default_str();
  command.add_flag("--several-launches", several_launches, "layers of few tokens in several launches too");
  command.add_option("--seed", seed, "seed of the routing")->check(whole_number(0, INT64_MAX))->capture_default_str();
  command.add_option("--repetitions", repetitions, "times each is measured (default: 1, with --baseline 5)")
      ->check(whole_number(1));
  command.add_option("--min-time", min_time, "least seconds of one measurement")
      ->check(seconds(0.001, 3600))
      ->capture_default_str();
  command.add_option("--report", report, "write the results as one HTML page with plots")
      ->check(file_name())
      ->type_name("FILE.html");
  command.add_flag("--json", json, "results as Google Benchmark's JSON");
}

bench::ModelBenchmarks MeasureOptions::models() const {
  bench::ModelBenchmarks wanted;
  wanted.shapes = shapes == std::vector<std::string>{"all"} ? all_shapes() : shapes;
  wanted.schemes = schemes;
  wanted.tokens = tokens;
  wanted.experts = experts;
  wanted.several_launches = several_launches;
  for (const std::string& name : routing) wanted.routings.push_back(bench::RoutingSource::named(name, seed));
  return wanted;
}

void MeasureOptions::set_flags() const {
  static char program[] = "moecl";  // kept by the library
  std::vector<std::string> flags = {fmt::format("--benchmark_min_time={}" BENCHMARK_SECONDS, min_time),
                                    fmt::format("--benchmark_repetitions={}", repetitions),
                                    fmt::format("--benchmark_list_tests={}", list)};
  std::vector<char*> arguments = {program};
  for (std::string& flag : flags) arguments.push_back(flag.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
}

}  // namespace moecl::cli
