// `moecl balance`: computes a new placement of experts for the loads in a file.
#include <moecl/balance.hpp>

#include <fstream>
#include <iostream>

#include "host/checkpoint/json_file.hpp"
#include "tools/commands.hpp"
#include "tools/json_numbers.hpp"
#include "tools/json_text.hpp"
#include "tools/routing_record.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

struct BalanceOptions {
  std::string path, policy;
  std::int32_t ranks = 0, places = 0;  ///< of a record; 0: as recorded
  bool json = false;
};

class CaseFile {
 public:
  CaseFile(std::string path, const nlohmann::json& of) : path_(std::move(path)), of_(of) {}

  void read(const char* key, std::int32_t& to) const {
    const nlohmann::json* const found = find_member(of_, key);
    if (found == nullptr) return;
    if (!found->is_number_integer() ||
        found->get<std::int64_t>() != static_cast<std::int32_t>(found->get<std::int64_t>()))
      throw Error(ErrorCode::invalid_data,
                  fmt::format("{}: {}: expected a whole number, got {}", path_, key, found->dump()));
    to = found->get<std::int32_t>();
  }
  template <class Number>
  void read(const char* key, std::vector<Number>& to, std::vector<std::int32_t> sizes) const {
    if (const nlohmann::json* const found = find_member(of_, key))
      append_numbers<Number>(to, *found, fmt::format("{}: {}", path_, key), sizes);
  }
  void read(const char* key, double& to) const {
    const nlohmann::json* const found = find_member(of_, key);
    if (found != nullptr) {
      std::vector<double> number;
      append_numbers<double>(number, *found, fmt::format("{}: {}", path_, key), {});
      to = number.front();
    }
  }
  void read(const char* key, bool& to) const {
    const nlohmann::json* const found = find_member(of_, key);
    if (found == nullptr) return;
    if (!found->is_boolean())
      throw Error(ErrorCode::invalid_data, fmt::format("{}: {}: expected true or false", path_, key));
    to = found->get<bool>();
  }
  /// Reads the loads and the table of one call. For flashlb the length of the list gives the stages.
  void read_loads(BalancePolicy policy, BalanceProblem& problem) const {
    problem.loads.clear(), problem.current.clear(), problem.place_loads.clear();
    read("loads", problem.loads, {problem.layers, problem.experts});
    read("current", problem.current, {problem.layers, problem.places});
    if (policy == BalancePolicy::flashlb) {
      const nlohmann::json* const stages = find_member(of_, "slot_loads");
      problem.stages = stages != nullptr && stages->is_array() ? static_cast<std::int32_t>(stages->size()) : 1;
      read("slot_loads", problem.place_loads, {problem.stages, problem.layers, problem.places});
    } else {
      read("slot_loads", problem.place_loads, {problem.layers, problem.places});
    }
  }

 private:
  std::string path_;
  const nlohmann::json& of_;
};

/// The policy's input came from the file, so what it refuses is invalid data.
template <class Run>
Balanced of_file(const std::string& path, const Run& run) {
  try {
    return run();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(ErrorCode::invalid_data, fmt::format("{}: {}", path, error.what()));
  }
}

Balanced balance_case(const std::string& path, BalancePolicy policy, BalanceProblem& problem) {
  const JsonDocument document = read_json_file(path);
  const CaseFile file(path, document.root);
  file.read("layers", problem.layers);
  file.read("experts", problem.experts);
  file.read("slots", problem.places);
  file.read("ranks", problem.ranks);
  file.read("groups", problem.expert_groups);
  file.read("nodes", problem.nodes);
  file.read("config.ranks_per_node", problem.ranks_per_node);
  file.read("config.node_redundant", problem.node_redundant);
  file.read("config.world_size", problem.world_size);
  file.read("config.z_score", problem.z_score);
  file.read("config.depth", problem.depth);
  file.read("config.width", problem.width);
  file.read("config.sample_size", problem.sample_size);
  return of_file(path, [&] {
    BalanceHistory history;
    const nlohmann::json* const earlier = find_member(document.root, "history");
    if (earlier != nullptr && earlier->is_array())
      for (const nlohmann::json& call : *earlier) {
        BalanceProblem before = problem;
        CaseFile(path, call).read_loads(policy, before);
        balance(policy, before, &history);
      }
    file.read_loads(policy, problem);
    return balance(policy, problem, &history);
  });
}

Balanced balance_file(const BalanceOptions& options, BalancePolicy policy, BalanceProblem& problem) {
  if (!options.path.ends_with(".safetensors")) {
    if (options.ranks != 0 || options.places != 0)
      throw Error(ErrorCode::invalid_argument, "--ranks, --slots: of a record; a case says them itself");
    return balance_case(options.path, policy, problem);
  }
  problem = balance_problem(read_record(options.path), options.ranks, options.places);
  return of_file(options.path, [&] { return balance(policy, problem); });
}

nlohmann::ordered_json document_of(BalancePolicy policy, const BalanceProblem& problem, const Balanced& found) {
  using nlohmann::ordered_json;
  const auto experts = static_cast<std::size_t>(problem.experts), places = static_cast<std::size_t>(problem.places);
  ordered_json tables = ordered_json::array(), lists = ordered_json::array(), replicas = ordered_json::array();
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(problem.layers); ++layer) {
    const auto row = found.logical_of.begin() + static_cast<std::ptrdiff_t>(layer * places);
    const auto counts = found.replicas.begin() + static_cast<std::ptrdiff_t>(layer * experts);
    tables.push_back(std::vector<std::int32_t>(row, row + problem.places));
    replicas.push_back(std::vector<std::int32_t>(counts, counts + problem.experts));
    auto at = found.places_of.begin() + static_cast<std::ptrdiff_t>(layer * places);
    ordered_json& of_layer = lists.emplace_back(ordered_json::array());
    for (std::int32_t e = 0; e < problem.experts; at += counts[e++])
      of_layer.push_back(std::vector<std::int32_t>(at, at + counts[e]));
  }
  ordered_json document = {{"policy", name(policy)},
                           {"physical_to_logical", std::move(tables)},
                           {"logical_to_physical", std::move(lists)},
                           {"replicas", std::move(replicas)},
                           {"max_load", found.load},
                           {"mean_load", found.mean_load},
                           {"moves", found.moves}};
  if (!problem.current.empty()) document["max_load_before"] = found.load_before;
  using enum BalancePolicy;
  if (policy == ascend_default || policy == ascend_swift || policy == flashlb) {
    document["changed"] = found.changed;
    document["layer_priority"] = found.layer_priority;
  }
  return document;
}

int run(const BalanceOptions& options) {
  const BalancePolicy policy = balance_policy_from_name(options.policy);
  BalanceProblem problem;
  const Balanced found = balance_file(options, policy, problem);
  if (options.json) {
    std::cout << json_text(document_of(policy, problem, found), -1) << '\n';
    return done;
  }
  const auto ratio = [&](double load) {
    return fmt::format("{:.3f}", found.mean_load > 0 ? load / found.mean_load : 1);
  };
  std::vector<Row> rows = {{"fullest rank", "load", "of the mean"}};
  if (!problem.current.empty())
    rows.push_back({"before", fmt::format("{:.6g}", found.load_before), ratio(found.load_before)});
  rows.push_back({"after", fmt::format("{:.6g}", found.load), ratio(found.load)});
  fmt::print("{}{} experts move, of {} places in {} layers\n", table(rows, line_width), found.moves, problem.places,
             problem.layers);
  return done;
}

}  // namespace

void add_balance(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<BalanceOptions>();
  CLI::App* command = app.add_subcommand("balance", "Place experts anew for loads that were counted");
  command
      ->add_option("case", options->path,
                   "loads and the table in force, as JSON, or a record that `moecl run --record` wrote")
      ->required()
      ->type_name("CASE.json|RECORD.safetensors");
  command->add_option("--ranks", options->ranks, "ranks to place a record's experts on (default: as recorded)")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--slots", options->places, "places of all ranks (default: as recorded)")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--policy", options->policy, "who places them")
      ->required()
      ->check(one_of({"deepseek", "vllm", "ascend_default", "ascend_swift", "flashlb", "moecl"}));
  command->add_flag("--json", options->json, "the new tables, as JSON");
  command->callback([options, &outcome] { outcome = run(*options); });
}

}  // namespace moecl::cli
