// Runs recorded calls of operators: one rank's on one device, several ranks' together.
#include "tools/operator_run.hpp"

#include <moecl/error.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/trace.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "host/npu/operator.hpp"
#include "tools/rank_devices.hpp"

namespace moecl::cli {
namespace {

/// What a case says beside the operator's own parameters.
bool is_remark(const std::string& parameter) {
  return parameter == "active_pairs" || parameter == "x_is_list" || parameter == "weight_is_list";
}

/// Of 64 bits: a larger one would become a negative one, which may be as good a parameter.
bool is_whole(const nlohmann::json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

npu::Value value_of(const nlohmann::json& value, const std::string& name) {
  if (value.is_boolean()) return value.get<bool>();
  if (is_whole(value)) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_whole))
    return value.get<std::vector<std::int64_t>>();
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: expected true, false, a number, text or a list of whole numbers, got {}", name, value.dump()));
}

/// Names of the case's inputs without `before`, a list's tensors in their order: {"x", "weight.0", "weight.1"}.
std::vector<std::string> input_names(const SafetensorsFile& file, const std::string& before) {
  std::vector<std::string> names;
  for (const std::string& name : file.names())
    if (name.rfind(before, 0) == 0) names.push_back(name.substr(before.size()));
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
  /// @param rank  Whose tensors: those of "rank3." of a call by several ranks; -1: the only one's
  CaseOnDevice(StreamView stream, const OperatorCase& from, std::int64_t rank)
      : call_(npu::find_operator(from.operator_name()).bind()), prefix_(rank < 0 ? "" : fmt::format("rank{}.", rank)) {
    const nlohmann::json parameters = from.parameters();
    for (const auto& [name, value] : parameters.items())
      if (rank >= 0 && name == "ep_rank_id")
        call_->set_parameter(name, rank);
      else if (!is_remark(name) && !value.is_null())
        call_->set_parameter(name, value_of(value, name));
    for (const std::string& name : input_names(from.tensors, prefix_ + "in.")) {
      const HostTensor tensor = from.tensors.tensor(prefix_ + "in." + name).in_memory();
      memory_.emplace_back(*stream.context, tensor.size_bytes);
      write_blocking(stream, memory_.back().view(), tensor.data.memory(), tensor.size_bytes);
      call_->set_input(name.substr(0, name.find('.')), view_of(memory_.back(), tensor.dtype, tensor.shape));
    }
    call_->infer();
    for (const npu::BoundCall::Output& output : call_->outputs()) {
      memory_.emplace_back(*stream.context, output.view->size_bytes());
      output.view->buffer = memory_.back().view();
    }
  }

  /// @param on  What the operator is called with: the stream, or the communicator that has it. Returns the workspace's
  /// bytes.
  template <class On>
  std::uint64_t run(StreamView stream, On& on, const OperatorRunOptions& options) {
    npu::Call how;
    const std::uint64_t workspace_bytes = call_->workspace_bytes(stream.device->caps);
    const Buffer workspace(*stream.context, workspace_bytes), fault(*stream.context, 16);
    enqueue_fill(stream, fault.view(), 0);
    how.workspace = workspace.view();
    how.fault = TensorView(fault.view(), DType::i32, {4});
    how.validation = options.compatible ? npu::Validation::compatible : npu::Validation::strict;
    how.tail = options.tail;
    call_->enqueue(on, how);
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
      const std::string plain = prefix_ + "out." + output.name;
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
  std::string prefix_;
  std::vector<Buffer> memory_;
};

void add_device(OperatorRun& run, const DeviceCaps& caps) {
  run.summary["devices"].push_back(
      {{"platform", caps.platform_name}, {"name", caps.name}, {"driver", caps.driver_version}});
}

void add_kernels(OperatorRun& run, Context& context) {
  nlohmann::ordered_json& kernels = run.summary["kernels"];
  if (kernels.is_null()) kernels = nlohmann::ordered_json::array();
  for (const WorkSummary& row : context.trace()->summary())
    if (row.kind == WorkKind::kernel)
      kernels.push_back(
          {{"name", row.name}, {"variant", row.variant}, {"count", row.count}, {"total_us", row.total_us}});
}

OperatorRun run_alone(const OperatorRunOptions& options, const OperatorCase& from) {
  const auto context = options.device.open();
  const Stream stream(*context);
  const StreamView on = stream;
  CaseOnDevice on_device(on, from, -1);
  context->trace()->clear();
  OperatorRun run;
  add_device(run, context->devices().front().caps);
  run.summary["device"] = run.summary["devices"].front();
  run.summary["workspace_bytes"] = on_device.run(on, on, options);
  add_kernels(run, *context);
  run.outputs = on_device.read(on, from);
  return run;
}

OperatorRun run_together(const OperatorRunOptions& options, const OperatorCase& from, int ranks) {
  const RankDevices devices(options.device, ranks);
  const std::vector<Stream> streams = devices.traced();
  GroupOptions group_options;
  group_options.transport = options.transport;
  RankGroup group({streams.begin(), streams.end()}, group_options);
  for (const auto& context : devices.contexts) context->trace()->clear();
  std::vector<std::vector<OutputTensor>> outputs(static_cast<std::size_t>(ranks));
  std::atomic<std::uint64_t> workspace_bytes{0};
  group.run([&](Communicator& world) {
    const StreamView stream = world.stream();
    CaseOnDevice on_device(stream, from, world.rank());
    workspace_bytes += on_device.run(stream, world, options);
    outputs[static_cast<std::size_t>(world.rank())] = on_device.read(stream, from);
  });
  OperatorRun run;
  std::uint64_t exchanged = 0;
  for (int rank = 0; rank < ranks; ++rank) exchanged += group.communicator(rank).bytes_received();
  for (const Stream& stream : streams) add_device(run, stream.view().device->caps);
  run.summary["device"] = run.summary["devices"].front();
  run.summary["rank_places"] = devices.places;
  run.summary["workspace_bytes"] = workspace_bytes.load();
  run.summary["bytes_exchanged"] = exchanged;
  for (const auto& context : devices.contexts) add_kernels(run, *context);
  for (std::vector<OutputTensor>& of_rank : outputs)
    std::move(of_rank.begin(), of_rank.end(), std::back_inserter(run.outputs));
  return run;
}

}  // namespace

OperatorRun run_operator_case(const OperatorRunOptions& options, const OperatorCase& from) {
  if (!npu::find_operator(from.operator_name()).collective) return run_alone(options, from);
  const nlohmann::json ranks = from.parameters().value("ep_world_size", nlohmann::json());
  if (!ranks.is_number_integer() || ranks < 1 || ranks > most_ranks)
    throw Error(ErrorCode::invalid_data, fmt::format("{}: ep_world_size: expected a whole number from 1 to {}, got {}",
                                                     from.path, most_ranks, ranks.dump()));
  return run_together(options, from, ranks.get<int>());
}

}  // namespace moecl::cli
