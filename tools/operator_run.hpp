#pragma once
// Runs a recorded call of an operator: by one rank, or by all ranks of a group, each on its own thread.
#include <moecl/communicator.hpp>
#include <moecl/npu.hpp>

#include <nlohmann/json.hpp>

#include <optional>
#include <vector>

#include "tools/device_options.hpp"
#include "tools/operator_case.hpp"

namespace moecl::cli {

struct OperatorRunOptions {
  DeviceOptions device;
  bool compatible = false;
  npu::Tail tail = npu::Tail::poison;
  std::optional<TransportKind> transport;  ///< between ranks; unset: probed
};

struct OperatorRun {
  std::vector<OutputTensor> outputs;
  nlohmann::ordered_json summary;  ///< devices, kernels, workspace, and with ranks the bytes exchanged
};

/// Errors: invalid_data, and those of the operator
OperatorRun run_operator_case(const OperatorRunOptions& options, const OperatorCase& from);

}  // namespace moecl::cli
