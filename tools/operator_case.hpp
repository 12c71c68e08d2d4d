#pragma once
// One recorded call of an operator: parameters and rules in a JSON file, tensors in the safetensors file beside it.
#include <moecl/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace moecl::cli {

struct OperatorCase {
  std::string path;
  nlohmann::json rules;  ///< the JSON file
  SafetensorsFile tensors;

  /// Errors: io_error, invalid_data  one of the files
  static OperatorCase open(const std::string& json_path);
  std::string operator_name() const;
  nlohmann::json parameters() const;
};

/// A tensor that a call returned, under its name in the case ("out.y").
struct OutputTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  HostTensor host() const { return {name, dtype, shape, bytes.data(), bytes.size()}; }
};

struct OutputVerdict {
  std::string name, rule;
  std::string difference;  ///< empty if the tensor agrees
};

/// Compares by the case's rules. A difference is accepted if another documented rounding, a `variant`, agrees.
/// Errors: invalid_data  rules that this version does not know
std::vector<OutputVerdict> check_outputs(const OperatorCase& with, const std::vector<OutputTensor>& outputs);

}  // namespace moecl::cli
