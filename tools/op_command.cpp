#include <moecl/error.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/safetensors.hpp>
#include <moecl/trace.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

#include "host/npu/operator.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/operator_case.hpp"
#include "tools/operators_page.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

struct OpOptions {
  DeviceOptions device;
  std::string path, output;
  bool check = false, list = false, page = false, json = false, compatible = false;
  npu::Tail tail = npu::Tail::poison;
};

/// What a case says beside the operator's own parameters.
bool is_remark(const std::string& parameter) {
  return parameter == "active_pairs" || parameter == "x_is_list" || parameter == "weight_is_list";
}

npu::Value value_of(const nlohmann::json& value, const std::string& name) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& v) { return v.is_number_integer(); }))
    return value.get<std::vector<std::int64_t>>();
  throw Error(ErrorCode::invalid_data, fmt::format("{}: no operator takes the value {}", name, value.dump()));
}

/// Names of the case's inputs without "in.", a list's tensors in their order: {"x", "weight.0", "weight.1"}.
std::vector<std::string> input_names(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const std::string& name : file.names())
    if (name.rfind("in.", 0) == 0) names.push_back(name.substr(3));
  const auto index = [](const std::string& name) {
    const std::size_t dot = name.find('.');
    return std::pair(name.substr(0, dot), dot == std::string::npos ? 0 : std::strtol(&name[dot + 1], nullptr, 10));
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return index(a) < index(b); });
  return names;
}

TensorView view_of(const Buffer& memory, DType dtype, const std::vector<std::int64_t>& shape) {
  switch (shape.size()) {
    case 0:
      return {memory.view(), dtype, {1}};
    case 1:
      return {memory.view(), dtype, {shape[0]}};
    case 2:
      return {memory.view(), dtype, {shape[0], shape[1]}};
    case 3:
      return {memory.view(), dtype, {shape[0], shape[1], shape[2]}};
    case 4:
      return {memory.view(), dtype, {shape[0], shape[1], shape[2], shape[3]}};
    default:
      throw Error(ErrorCode::invalid_data, fmt::format("a tensor of {} dimensions; at most 4", shape.size()));
  }
}

/// A call of the case's operator with its tensors on the device.
class CaseOnDevice {
 public:
  CaseOnDevice(StreamView stream, const OperatorCase& from) : call_(npu::find_operator(from.operator_name()).bind()) {
    const nlohmann::json parameters = from.rules.value("parameters", nlohmann::json::object());
    for (const auto& [name, value] : parameters.items())
      if (!is_remark(name) && !value.is_null()) call_->set_parameter(name, value_of(value, name));
    for (const std::string& name : input_names(from.tensors)) {
      const HostTensor tensor = from.tensors.tensor("in." + name);
      memory_.emplace_back(*stream.context, tensor.size_bytes);
      write_blocking(stream, memory_.back().view(), tensor.data, tensor.size_bytes);
      call_->set_input(name.substr(0, name.find('.')), view_of(memory_.back(), tensor.dtype, tensor.shape));
    }
    call_->infer();
    for (const npu::BoundCall::Output& output : call_->outputs()) {
      memory_.emplace_back(*stream.context, output.view->size_bytes());
      output.view->buffer = memory_.back().view();
    }
  }

  std::uint64_t run(StreamView stream, const OpOptions& options) {
    npu::Call how;
    const std::uint64_t workspace_bytes = call_->workspace_bytes(stream.device->caps);
    const Buffer workspace(*stream.context, workspace_bytes), fault(*stream.context, 16);
    enqueue_fill(stream, fault.view(), 0);
    how.workspace = workspace.view();
    how.fault = TensorView(fault.view(), DType::i32, {4});
    how.validation = options.compatible ? npu::Validation::compatible : npu::Validation::strict;
    how.tail = options.tail;
    call_->enqueue(stream, how);
    check_fault(stream, how.fault);
    return workspace_bytes;
  }

  /// A list's tensors are numbered, unless the case stores the only one plainly.
  std::vector<OutputTensor> read(StreamView stream, const OperatorCase& from) {
    const std::vector<std::string> stored = from.tensors.names();
    std::vector<OutputTensor> outputs;
    std::string last;
    int index = 0;
    for (const npu::BoundCall::Output& output : call_->outputs()) {
      index = output.name == last ? index + 1 : 0;
      last = output.name;
      const TensorView& view = *output.view;
      const std::string plain = "out." + output.name;
      const bool numbered = output.list && std::find(stored.begin(), stored.end(), plain) == stored.end();
      outputs.push_back({numbered ? fmt::format("{}.{}", plain, index) : plain,
                         view.dtype,
                         {view.shape.begin(), view.shape.begin() + view.rank},
                         std::vector<std::byte>(view.size_bytes())});
      read_blocking(stream, view.buffer, outputs.back().bytes.data(), outputs.back().bytes.size());
    }
    return outputs;
  }

 private:
  std::unique_ptr<npu::BoundCall> call_;
  std::vector<Buffer> memory_;
};

void print(const nlohmann::ordered_json& summary) {
  fmt::print("{} on {} / {}\n", summary["operator"].get<std::string>(),
             summary["device"]["platform"].get<std::string>(), summary["device"]["name"].get<std::string>());
  std::vector<Row> rows = {{"kernel", "variant", "count", "total us"}};
  for (const auto& kernel : summary["kernels"])
    rows.push_back({kernel["name"].get<std::string>(), kernel["variant"].get<std::string>(),
                    std::to_string(kernel["count"].get<std::uint64_t>()),
                    fmt::format("{:.1f}", kernel["total_us"].get<double>())});
  fmt::print("{}", table(rows));
  for (const auto& output : summary["outputs"])
    fmt::print("{}{}\n", output["tensor"].get<std::string>(),
               output.contains("result") ? ": " + output["result"].get<std::string>() : "");
}

int run_case(const OpOptions& options) {
  const OperatorCase from = OperatorCase::open(options.path);
  const auto context = options.device.open();
  const Stream stream(*context);
  std::vector<OutputTensor> outputs;
  nlohmann::ordered_json summary;
  try {
    CaseOnDevice on_device(stream, from);
    context->trace()->clear();
    const DeviceCaps& caps = context->devices().front().caps;
    summary["operator"] = from.operator_name();
    summary["device"] = {{"platform", caps.platform_name}, {"name", caps.name}, {"driver", caps.driver_version}};
    summary["workspace_bytes"] = on_device.run(stream, options);
    summary["kernels"] = nlohmann::ordered_json::array();
    for (const WorkSummary& row : context->trace()->summary())
      if (row.kind == WorkKind::kernel)
        summary["kernels"].push_back(
            {{"name", row.name}, {"variant", row.variant}, {"count", row.count}, {"total_us", row.total_us}});
    outputs = on_device.read(stream, from);
  } catch (const Error& error) {
    // What the operator refuses came out of the case file.
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(ErrorCode::invalid_data, fmt::format("{}: {}", options.path, error.what()));
  }

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
    std::cout << summary.dump(2) << '\n';
  else
    print(summary);
  return result;
}

int op(const OpOptions& options) {
  if (options.page) {
    std::cout << operators_page();
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
  command->add_option("case", options->path, "CASE.json; its tensors are in CASE.safetensors beside it");
  command->add_option("--output", options->output, "write the outputs to this safetensors file");
  command->add_flag("--check", options->check, "compare with the outputs of the case by its own rules");
  command->add_flag("--list", options->list, "name the operators and their parameters");
  command->add_flag("--page", options->page, "write the page about the operators (OPERATORS.md)");
  command->add_flag("--compatible", options->compatible, "take data that the strict mode refuses as the device does");
  command->add_option("--tail", options->tail, "what fills the undefined part of outputs")
      ->transform(CLI::CheckedTransformer(std::map<std::string, npu::Tail>{
          {"poison", npu::Tail::poison}, {"zero", npu::Tail::zero}, {"untouched", npu::Tail::untouched}}))
      ->default_str("poison");
  command->add_flag("--json", options->json, "as JSON");
  options->device.add_to(*command);
  command->callback([options, &outcome] { outcome = op(*options); });
}

}  // namespace moecl::cli
