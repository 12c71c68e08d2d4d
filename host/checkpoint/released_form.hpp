#pragma once
// The released form of checkpoints with a scheme: the tensors of a quantized matrix, and the quantization_config.
#include <moecl/host_tensor.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "host/checkpoint/weight_quantizer.hpp"

namespace moecl {

/// One tensor of a quantized matrix, without its data. `part` says which part of QuantizedWeights is the data.
struct ReleasedTensor {
  enum class Part : std::uint8_t { codes, scale, global_scale, shape };
  HostTensor tensor;
  Part part;
};

/// Whether some producer releases experts in this form. Stacked experts are released only as mxfp4 with plain
/// activations, not flat, and not beside shared experts.
/// @param stacked  One tensor holds the matrices of all experts. @param flat  As in ExpertTensorNames
bool is_released(const QuantScheme& scheme, bool stacked, bool shared, bool flat);

/// The tensors of a matrix: compressed-tensors where it has the format, else fp8 (blocks) or Quark (mxfp6, mxfp8).
///
/// @param name  The plain tensor's name. @param stacked  Experts that share a tensor, as in gpt-oss's mxfp4; 0: none
/// Errors: invalid_argument  K is not in whole units
std::vector<ReleasedTensor> released_tensors(const std::string& name, std::int64_t rows, std::int64_t columns,
                                             const OperandQuant& weights, std::int64_t stacked = 0);
/// The bytes of that part. They are valid as long as `weights` and `number` are unchanged.
const void* released_bytes(ReleasedTensor::Part part, const QuantizedWeights& weights, std::vector<std::byte>& number);
nlohmann::json released_config(const QuantScheme& scheme, bool stacked = false);

}  // namespace moecl
