// Runs recorded calls of operators: those of one rank on one device, those of several ranks together.
#include "tools/operator_run.hpp"

#include <moecl/error.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/trace.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tools/operator_binding.hpp"
#include "tools/rank_devices.hpp"

namespace moecl::cli {
namespace {

/// A call of the case's operator with its tensors on the device.
class CaseOnDevice {
 public:
  /// @param rank  whose tensors: "rank3." and so on in a call of several ranks; -1: a call of one rank
  CaseOnDevice(StreamView stream, const OperatorCase& from, std::int64_t rank) : prefix_(prefix_of(rank)) {
    call_ = bind_case(from, rank, [&](const HostTensor& tensor) {
      const Buffer& memory = memory_.emplace_back(*stream.context, tensor.size_bytes);
      write_blocking(stream, memory.view(), tensor.data.memory(), tensor.size_bytes);
      return memory.view();
    });
    for (const npu::BoundCall::Output& output : call_->outputs()) {
      memory_.emplace_back(*stream.context, output.view->size_bytes());
      output.view->buffer = memory_.back().view();
    }
  }

  /// @param on  what the operator is called with: the stream, or the communicator that has it
  /// @return  the bytes of the workspace
  template <class On>
  std::uint64_t run(StreamView stream, On& on, const OperatorRunOptions& options) {
    npu::Call how;
    const std::uint64_t workspace_bytes = call_->workspace_bytes(*stream.device);
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

  /// Reads the outputs. A list's tensors are numbered, unless the case stores a single one without a number.
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
