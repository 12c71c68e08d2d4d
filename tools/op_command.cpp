#include <moecl/error.hpp>
#include <moecl/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <iostream>

#include "host/npu/operator.hpp"
#include "tools/commands.hpp"
#include "tools/json_text.hpp"
#include "tools/operator_run.hpp"
#include "tools/operators_page.hpp"
#include "tools/own_files.hpp"
#include "tools/printable.hpp"
#include "tools/rank_devices.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

struct OpOptions {
  OperatorRunOptions run;
  std::string path, output;
  std::string header;
  bool check = false, list = false, page = false, python = false, json = false;
};

void print(const nlohmann::ordered_json& summary) {
  fmt::print("{} on {} / {}\n", summary["operator"].get<std::string>(),
             printable(summary["device"]["platform"].get<std::string>()),
             printable(summary["device"]["name"].get<std::string>()));
  std::vector<Row> rows = {{"kernel", "variant", "count", "total us"}};
  for (const auto& kernel : summary["kernels"])
    rows.push_back({kernel["name"].get<std::string>(), kernel["variant"].get<std::string>(),
                    std::to_string(kernel["count"].get<std::uint64_t>()),
                    fmt::format("{:.1f}", kernel["total_us"].get<double>())});
  fmt::print("{}", table(rows));
  for (const auto& output : summary["outputs"])
    fmt::print("{}{}\n", printable(output["tensor"].get<std::string>()),
               output.contains("result") ? ": " + verdict(printable(output["result"].get<std::string>())) : "");
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const npu::Operator& known : npu::operators()) names.emplace_back(known.name);
  return names;
}

int run_case(const OpOptions& options) {
  const OperatorCase from = OperatorCase::open(options.path);
  expect_own_files({{"--output", options.output}},
                   {{"the case", options.path}, {"the case's tensors", from.tensors.path()}});
  OperatorRun run;
  try {
    run = run_operator_case(options.run, from);
  } catch (const Error& error) {
    const std::string meant = did_you_mean(from.operator_name(), operator_names());
    if (!meant.empty()) throw Error(error.code(), error.what() + meant);
    // The arguments came from the case file, so what the operator refuses is invalid data.
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(ErrorCode::invalid_data, fmt::format("{}: {}", options.path, error.what()));
  }

  const std::vector<OutputTensor>& outputs = run.outputs;
  nlohmann::ordered_json summary = {{"operator", from.operator_name()}};
  summary.update(run.summary);
  int result = done;
  std::vector<OutputVerdict> verdicts;
  if (options.check) verdicts = check_outputs(from, outputs);
  summary["outputs"] = nlohmann::ordered_json::array();
  for (const OutputTensor& output : outputs) summary["outputs"].push_back({{"tensor", output.host().describe()}});
  for (const OutputVerdict& verdict : verdicts) {
    if (!verdict.difference.empty()) result = check_failed;
    auto& row = summary["outputs"].emplace_back(nlohmann::ordered_json{{"tensor", "check " + verdict.name}});
    row["result"] = verdict.difference.empty() ? "ok (" + verdict.rule + ")" : "FAIL: " + verdict.difference;
  }
  if (options.check && verdicts.empty()) throw Error(ErrorCode::invalid_data, options.path + ": no output to compare");
  if (!options.output.empty()) {
    std::vector<HostTensor> tensors;
    for (const OutputTensor& output : outputs) tensors.push_back(output.host());
    write_safetensors(options.output, tensors);
  }
  if (options.json)
    std::cout << json_text(summary, 2) << '\n';
  else
    print(summary);
  return result;
}

int op(const OpOptions& options) {
  if (options.page) {
    std::cout << operators_page();
    return done;
  }
  if (options.python) {
    std::cout << operators_python();
    return done;
  }
  if (!options.header.empty()) {
    std::cout << operators_header(options.header);
    return done;
  }
  if (options.list) {
    std::cout << (options.json ? operators_json() : operators_list());
    return done;
  }
  if (options.path.empty()) throw Error(ErrorCode::invalid_argument, "op: expected CASE.json or --list");
  return run_case(options);
}

}  // namespace

void add_op(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<OpOptions>();
  CLI::App* command = app.add_subcommand("op", "Run one recorded call of an operator");
  command->add_option("case", options->path, "CASE.json; its tensors are in CASE.safetensors beside it")
      ->type_name("FILE.json");
  command->add_option("--output", options->output, "write the outputs to this safetensors file")
      ->check(file_name())
      ->type_name("FILE.safetensors");
  command->add_flag("--check", options->check, "compare with the outputs of the case by its own rules");
  command->add_flag("--list", options->list, "name the operators and their parameters");
  command->add_flag("--page", options->page, "write the page about the operators (OPERATORS.md)");
  command->add_flag("--python", options->python, "write the operators as functions of Python (operators.py)");
  command->add_option("--header", options->header, "write the C header of a family of operators (npu_FAMILY.h)");
  command->add_flag("--compatible", options->run.compatible,
                    "take data that the strict mode refuses as the device does");
  command
      ->add_option_function<std::string>(
          "--tail",
          [options](const std::string& text) {
            options->run.tail = text == "zero"        ? npu::Tail::zero
                                : text == "untouched" ? npu::Tail::untouched
                                                      : npu::Tail::poison;
          },
          "what fills the undefined part of outputs")
      ->check(one_of({"poison", "zero", "untouched"}))
      ->default_str("poison");
  add_transport(*command, options->run.transport);
  command->add_flag("--json", options->json, "as JSON");
  options->run.device.add_to(*command);
  command->callback([options, &outcome] { outcome = op(*options); });
}

}  // namespace moecl::cli
