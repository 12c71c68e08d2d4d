#pragma once
// How checkpoints with a scheme are released: the tensors of a quantized matrix, and the quantization_config.
#include <moecl/host_tensor.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "host/checkpoint/weight_quantizer.hpp"

namespace moecl {

/// One tensor of a quantized matrix: without data, and which part of QuantizedWeights is its data.
struct ReleasedTensor {
  enum class Part : std::uint8_t { codes, scale, global_scale, shape };
  HostTensor tensor;
  Part part;
};

/// Whether some producer writes experts so. @param stacked  All experts' matrices in one tensor, beside shared ones or
/// not: only mxfp4 is, alone. @param flat  As ExpertTensorNames has it: none is
bool is_released(const QuantScheme& scheme, bool stacked, bool shared, bool flat);

/// compressed-tensors where it has the format, else fp8 (blocks) and Quark (mxfp6, mxfp8).
///
/// @param name  Of the plain tensor. @param stacked  All experts' matrices in one: as gpt-oss stores mxfp4
/// Errors: invalid_argument  K is not in whole units
std::vector<ReleasedTensor> released_tensors(const std::string& name, std::int64_t rows, std::int64_t columns,
                                             const OperandQuant& weights, std::int64_t stacked = 0);
/// The bytes of that tensor; they live as long as `weights` and `number` do.
const void* released_bytes(ReleasedTensor::Part part, const QuantizedWeights& weights, std::vector<std::byte>& number);
nlohmann::json released_config(const QuantScheme& scheme, bool stacked = false);

}  // namespace moecl
