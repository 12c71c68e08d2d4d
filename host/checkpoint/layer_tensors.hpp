#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_source.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/tensor_part.hpp"

namespace moecl {

/// Where the matrices of a network are stored; `gate` has no name if the network has no gate. For a routed expert,
/// `expert` is its number among `experts`.
struct NetworkParts {
  TensorPart gate, up, down;

  NetworkParts(const ExpertTensorNames& names, std::int64_t hidden, std::int64_t width, std::int64_t experts,
               std::int64_t expert);
};

/// Finds the tensors of one layer and checks each against the shape that the config gives it.
class LayerTensors {
 public:
  LayerTensors(const TensorSource& source, const MoeLayerConfig& config)
      : source_(source), quantization_(config.quantization) {}

  /// Whether the checkpoint has this matrix, plain or quantized.
  bool has(const TensorPart& part) const;
  /// Whether the checkpoint has this matrix, either quantized or plain and of the part's stored shape.
  bool fits(const TensorPart& part) const;
  /// The tensors that the matrix needs. Each entry lists alternative names; any one of them is enough.
  std::vector<std::vector<std::string>> needed(const TensorPart& part) const;
  /// The only function that turns a tensor's name into a weight matrix. Errors: also those of QuantizedTensors
  WeightMatrix matrix(const TensorPart& part) const;
  /// The static scale of the matrix's input; nullopt where activations get their scales at run time or stay plain.
  std::optional<float> input_scale(const TensorPart& part) const;
  /// As `matrix`, for a tensor that is never quantized.
  HostMatrix plain(const TensorPart& part) const;
  /// A vector as a matrix [1, rows]. The stored tensor may have any number of leading dimensions of 1.
  HostMatrix vector(const TensorPart& part) const;

 private:
  HostMatrix view(const TensorPart& part, const std::vector<std::int64_t>& shape) const;

  const QuantizedModules* quantized(const TensorPart& part) const;

  const TensorSource& source_;
  const QuantizationConfig& quantization_;
};

}  // namespace moecl
