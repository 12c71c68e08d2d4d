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

/// The matrices of a network, without a gate where it has none; `expert` of `experts` when it is a routed one.
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
  /// Whether the checkpoint has it quantized, or plain in the part's shape.
  bool fits(const TensorPart& part) const;
  /// The tensors of the matrix, each as the names any one of which will do.
  std::vector<std::vector<std::string>> needed(const TensorPart& part) const;
  /// The one place where a tensor's name becomes a matrix of weights. Errors: also those of QuantizedTensors
  WeightMatrix matrix(const TensorPart& part) const;
  /// Of the matrix's input; nullopt where activations bring their own scales or stay plain.
  std::optional<float> input_scale(const TensorPart& part) const;
  /// The same of what is never quantized.
  HostMatrix plain(const TensorPart& part) const;
  /// A vector as [1, rows]; stored with any number of leading dimensions of 1.
  HostMatrix vector(const TensorPart& part) const;

 private:
  HostMatrix view(const TensorPart& part, const std::vector<std::int64_t>& shape) const;

  const QuantizedModules* quantized(const TensorPart& part) const;

  const TensorSource& source_;
  const QuantizationConfig& quantization_;
};

}  // namespace moecl
