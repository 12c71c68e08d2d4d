#pragma once
// Finds the tensors that hold one quantized matrix. Their names are derived from the plain tensor's name.
#include <moecl/moe_weights.hpp>
#include <moecl/quantization_config.hpp>
#include <moecl/tensor_source.hpp>

#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/tensor_part.hpp"

namespace moecl {

class QuantizedTensors {
 public:
  /// @param part  The part of the plain tensor: its name, and where the matrix is in it. `transposed` counts only for
  ///              StoredForm::rows; the other forms have a fixed order.
  QuantizedTensors(const TensorSource& source, const QuantizedModules& modules, const TensorPart& part)
      : source_(source), modules_(modules), part_(part), module_(module_of(part.name)) {}

  /// Whether the checkpoint has a tensor of the codes' name. Opens no shard. With StoredForm::rows it may be plain.
  bool named() const { return !codes_name().empty(); }
  /// Whether the checkpoint has the codes: such a tensor that is not plain.
  bool present() const { return find_codes().has_value(); }
  /// The tensors that `matrix` and `input_scale` need. Each entry lists alternative names; any one of them is enough.
  std::vector<std::vector<std::string>> needed() const;
  /// Codes, scales and zero points as views. Reads the global scale and the group index, and checks the index.
  ///
  /// A group index that equals k / group.columns for every k is left out.
  /// Errors: invalid_data  a tensor is missing, is not of the dtype or shape that the configuration gives it, or holds
  ///                       impossible values
  ///         unsupported   the part cannot be described: alternating rows within a unit or block
  WeightMatrix matrix() const;
  /// The static scale that quantized activations are multiplied by; nullopt where the scheme has no static scale.
  /// Errors: invalid_data  missing, not one number, or not above 0 and finite
  std::optional<float> input_scale() const;

 private:
  struct Packing;
  struct Scalar;
  Packing packing() const;
  std::vector<std::string> codes_names() const;
  std::string codes_name() const;
  std::optional<HostTensor> find_codes() const;
  std::vector<std::string> names_of(std::initializer_list<const char*> suffixes) const;
  std::string name_of(std::initializer_list<const char*> suffixes) const;
  std::optional<HostTensor> find(std::initializer_list<const char*> suffixes) const;
  HostTensor get(std::initializer_list<const char*> suffixes) const;
  CodeMatrix codes(const HostTensor& tensor, const Packing& packing, const TensorPart& part) const;
  TensorPart in_groups(const ScaleGroup& group) const;
  ScaleGroup group_of(const HostTensor& scale) const;
  HostMatrix scale(const HostTensor& tensor, const TensorPart& part) const;
  std::vector<std::int32_t> group_index(std::int64_t group_columns) const;
  void check_weight_shape() const;
  float number(std::initializer_list<Scalar> names) const;

  const TensorSource& source_;
  const QuantizedModules& modules_;
  const TensorPart& part_;
  std::string module_;
};

}  // namespace moecl
