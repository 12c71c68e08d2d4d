#pragma once
// The tensors that hold one quantized matrix, found by what is added to the name of the plain one.
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
  /// @param part  Of the plain tensor: its name, and where the matrix stands in it. What it says about transposing
  ///              counts for StoredForm::rows alone; the other forms have one order.
  QuantizedTensors(const TensorSource& source, const QuantizedModules& modules, const TensorPart& part)
      : source_(source), modules_(modules), part_(part), module_(module_of(part.name)) {}

  /// Whether the checkpoint has a tensor of the codes' name; opens no shard. With StoredForm::rows it may be plain.
  bool named() const { return !codes_name().empty(); }
  /// Whether it has the codes.
  bool present() const { return find_codes().has_value(); }
  /// What `matrix` and `input_scale` need, each the names any one of which will do.
  std::vector<std::vector<std::string>> needed() const;
  /// Codes, scales, zero points and the rest as views; reads the global scale and checks group indices.
  ///
  /// A group index that says what k / group.columns says anyway is left out.
  /// Errors: invalid_data  a tensor is missing, not of the dtype or shape that the configuration gives it, or holds
  ///                       values that cannot be
  ///         unsupported   the part cannot be described: alternating rows within a unit or block
  WeightMatrix matrix() const;
  /// What quantized activations are multiplied by; nullopt when they bring their own scales.
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
