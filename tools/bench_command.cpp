#include <moecl/error.hpp>
#include <moecl/trace.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

#include "bench/baseline.hpp"
#include "bench/device_time.hpp"
#include "bench/report_page.hpp"
#include "bench/results.hpp"
#include "tools/bench_compare.hpp"
#include "tools/bench_ranks.hpp"
#include "tools/commands.hpp"
#include "tools/interruption.hpp"
#include "tools/json_text.hpp"
#include "tools/measure_options.hpp"
#include "tools/own_files.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

struct BenchOptions : MeasureOptions {
  std::string baseline, trace;
  std::vector<std::string> results, compare;
  bool quick = false;
  RankOptions ranks;
};

/// Runs the matching benchmarks, or with --list names them.
void run_matching(bench::Collector& collector, const std::string& filter) {
  if (benchmark::RunSpecifiedBenchmarks(&collector, filter) == 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("--filter {}: no benchmark of that name", filter));
}

/// The matching benchmarks, by the names they have in results.
std::vector<std::string> matching_names(BenchOptions options) {
  options.list = true;
  options.set_flags();
  std::ostringstream names, messages;
  bench::Collector collector(nullptr);
  collector.SetErrorStream(&messages);
  collector.SetOutputStream(&names);
  run_matching(collector, options.filter);
  std::istringstream lines(names.str());
  std::vector<std::string> list;
  for (std::string name; std::getline(lines, name);) list.push_back(name.substr(0, name.find("/manual_time")));
  return list;
}

void print_names(const BenchOptions& options) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : matching_names(options)) list.push_back({{"name", name}});
  if (options.json)
    std::cout << json_text({{"benchmarks", list}}, 1) << '\n';
  else
    for (const auto& benchmark : list) fmt::print("{}\n", benchmark["name"].get<std::string>());
}

/// Prints a line for each benchmark that both results have. @return  how many became slower
std::size_t print_changes(std::FILE* to, const std::vector<bench::Change>& changes, const std::string& origin) {
  std::size_t regressions = 0;
  std::vector<Row> rows = {{"benchmark", "before us", "now us", "longer by", "noise", "result"}};
  for (const bench::Change& change : changes) {
    regressions += change.regressed() ? 1 : 0;
    rows.push_back({change.name, fmt::format("{:.1f}", change.before * 1e6), fmt::format("{:.1f}", change.now * 1e6),
                    fmt::format("{:+.1f} %", 100 * change.longer()), fmt::format("{:.1f} %", 100 * change.noise),
                    change.regressed() ? "SLOWER" : "ok"});
  }
  fmt::print(to, "\n{}against {}: {} of {} benchmarks became slower by more than the noise\n", table(rows, line_width),
             origin, regressions, changes.size());
  return regressions;
}

nlohmann::ordered_json read_document(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw Error(ErrorCode::io_error, fmt::format("{}: cannot be read", path));
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(text.str(), nullptr, false);
  bench::measured(document, path);  // fails before an hour of measuring
  return document;
}

void expect_own_report(const BenchOptions& options) {
  std::vector<NamedFile> read = {{"--baseline", options.baseline}};
  for (const std::string& results : options.results) read.push_back({"--results", results});
  for (const std::string& routing : options.routing) read.push_back({"--routing", routing});
  expect_own_files({{"--report", options.report}, {"--trace", options.trace}}, read);
}

/// Writes a page of results that were measured before.
int report_results(const BenchOptions& options) {
  std::vector<bench::NamedResults> runs;
  for (const std::string& path : options.results) runs.push_back({path, read_document(path)});
  bench::write_report(options.report, runs);
  return done;
}

/// Runs the same benchmarks on several devices.
int run_on_each(const BenchOptions& options, const CLI::App& command) {
  bench::register_models(options.models());
  matching_names(options);  // a filter that matches none is reported once, by this process
  const Comparison comparison = compare_devices(command, options.compare);
  if (!options.report.empty()) bench::write_report(options.report, comparison.runs);
  if (options.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const bench::NamedResults& run : comparison.runs) all.push_back(run.document);
    std::cout << json_text({{"runs", all}}, 1) << '\n';
  } else {
    fmt::print("{}", comparison_table(comparison.runs));
  }
  return comparison.failed ? check_failed : done;
}

int run(const BenchOptions& options, const CLI::App& command) {
  expect_own_report(options);
  if (!options.compare.empty()) return run_on_each(options, command);
  if (!options.results.empty()) return report_results(options);
  const nlohmann::ordered_json before = options.baseline.empty() ? nullptr : read_document(options.baseline);
  std::optional<BenchRanks> ranks;
  if (options.ranks.alone())
    bench::register_models(options.models());
  else
    ranks.emplace(options.ranks, options.models());
  if (options.list) return print_names(options), done;
  if (!ranks) bench::use(options.device.open());
  nlohmann::ordered_json facts = ranks ? ranks->open(options.device) : bench::context_facts();
  if (!options.ranks.launch.tells()) return ranks->run({}), done;
  facts["seed"] = options.seed;
  facts["shapes"] = bench::shape_facts(options.models());
  if (!before.is_null()) bench::expect_comparable(before, options.baseline, facts);
  const auto all = static_cast<std::int64_t>(matching_names(options).size());
  options.set_flags();
  Progress progress("bench");
  std::int64_t ended = 0;
  const auto after_each = [&] {
    progress(++ended, all);
    return interruption() != 0 || (ranks && ranks->failed());
  };
  bench::Collector collector(
      options.json ? nullptr : stdout, bench::heading(facts), after_each, [&progress] { progress.hide(); },
      ranks ? bench::Collector::of_ranks : bench::Collector::of_operators);
  std::ostringstream messages;
  collector.SetErrorStream(&messages);
  note_interruption();  // the measurements made until then are kept
  const auto measure = [&] {
    try {
      run_matching(collector, options.filter);
    } catch (const bench::Interrupted&) {
      if (interruption() != 0)
        fmt::print(stderr, "moecl: bench: interrupted after {} benchmarks\n", collector.finished());
    }
    progress.hide();
  };
  if (ranks)
    ranks->run(measure);
  else
    measure();
  if (!ranks && bench::slow_now()) facts["slow_mode"] = true;
  if (!options.json) fmt::print("{}", bench::slow_note(facts));
  if (!options.trace.empty()) facts["trace"] = options.trace;
  const nlohmann::ordered_json document = collector.document(facts);
  if (options.json)
    std::cout << json_text(document, 1) << '\n';  // first: a failure to write a file must not lose the results
  if (!options.trace.empty()) bench::stream().context->trace()->write_chrome_json(options.trace);
  if (!options.report.empty()) {
    std::vector<bench::NamedResults> runs = {{"this run", document}};
    if (!before.is_null()) runs.insert(runs.begin(), {options.baseline, before});
    bench::write_report(options.report, runs);
  }
  if (!before.is_null() && print_changes(options.json ? stderr : stdout,
                                         bench::compare(before, options.baseline, document), options.baseline) > 0)
    return check_failed;
  return collector.failed() || interruption() != 0 ? check_failed : done;
}

}  // namespace

void add_bench(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure the operators, and the layers of model shapes");
  options->add_to(*command);
  options->ranks.expert_parallel = true;
  options->ranks.add_to(*command);
  add_progress(*command);
  command->add_flag("--quick", options->quick, "a choice that ends within a minute on two cores");
  command
      ->add_option("--baseline", options->baseline,
                   "fail if a benchmark takes longer than in this result of --json, beyond the noise")
      ->check(file_name())
      ->type_name("FILE.json");
  command->add_option("--trace", options->trace, "write a Chrome/Perfetto trace of one pass of each layer")
      ->check(file_name())
      ->type_name("FILE.json")
      ->excludes(command->get_option("--ranks"));
  CLI::Option* results =
      command
          ->add_option("--results", options->results,
                       "measure nothing: write the report of these results of --json, compared with the first")
          ->check(file_name())
          ->delimiter(',')
          ->type_name("FILE.json,...")
          ->needs(command->get_option("--report"));
  for (const char* measuring : {"--baseline", "--trace", "--json", "--list"})
    results->excludes(command->get_option(measuring));
  CLI::Option* const compare =
      command
          ->add_option(
              "--compare", options->compare,
              "on these devices in turn, by parts of their or their platforms' names; --report shows them beside "
              "each other")
          ->type_name("DEVICE...")
          ->expected(1, 64);
  for (const char* other : {"--platform", "--device", "--list", "--baseline", "--results", "--trace", "--ranks"})
    compare->excludes(command->get_option(other));
  command->callback([=, &outcome] {
    const auto given = [&](const char* option) { return command->get_option(option)->count() != 0; };
    if (options->quick) {
      if (!given("--filter")) options->filter = "^(grouped_gemm|layer)/";
      if (!given("--shapes")) options->shapes = {"olmoe-1b-7b"};
      if (!given("--schemes")) options->schemes = {"bf16", "int8_w8a8"};
      if (!given("--tokens")) options->tokens = {1, 16, 128};
      if (!given("--min-time")) options->min_time = 0.05;
    }
    if (given("--baseline") && !given("--repetitions")) options->repetitions = 5;
    if (options->ranks.launch.name() == "processes") note_interruption();  // in all processes; rank 0 reports it
    outcome = options->ranks.launch.run(options->ranks.ranks, [&] { return run(*options, *command); });
  });
}

}  // namespace moecl::cli
