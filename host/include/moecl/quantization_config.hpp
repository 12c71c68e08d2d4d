#pragma once
#include <moecl/module_pattern.hpp>
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// Which tensors hold a quantized matrix [N, K], and how its codes are packed in them.
enum class StoredForm : std::uint8_t {
  rows,     ///< "weight" or "weight_packed" [N, K]: one code per element, or several per byte along K
  words,    ///< "weight_packed" [N, K / n]: n codes to an int32 along K. Source: compressed-tensors, pack-quantized
  gptq,     ///< "qweight" [K / n, N]: n codes to an int32 along K; "qzeros" hold zero - 1. Source: AutoGPTQ
  gptq_v2,  ///< the same; "qzeros" hold the zero itself. Source: GPTQModel
  awq,      ///< "qweight" [K, N / 8]: 8 codes to an int32 along N, interleaved. Source: AutoAWQ, version gemm
  blocks,   ///< "..._blocks" [N, K / 32, 16] and "..._scales". Source: gpt-oss
};

/// Modules that are quantized alike.
struct QuantizedModules {
  std::vector<ModulePattern> targets;  ///< empty: every module that no other group names
  QuantScheme scheme;
  StoredForm form = StoredForm::rows;
};

/// The module that a tensor belongs to, as quantization configs name it: without ".weight".
std::string module_of(const std::string& tensor_name);

/// What a checkpoint's quantization_config says, in one form for all methods.
struct QuantizationConfig {
  std::string method;  ///< quant_method; empty when the checkpoint is not quantized
  std::vector<QuantizedModules> groups;
  std::vector<ModulePattern> ignored;
  /// Sentences for a log about fields that moecl does not know: it does not do what these ask for.
  std::vector<std::string> warnings;

  bool present() const noexcept { return !method.empty(); }
  /// How the module is quantized; nullptr: it is plain.
  const QuantizedModules* find(std::string_view module) const;
  /// Whether `ignored`, read as AutoAWQ reads it, could name this module. Then the stored tensors decide.
  bool may_ignore(std::string_view module) const;

  /// @param json    The quantization_config object of a config.json, or a whole hf_quant_config.json.
  /// @param origin  What messages call it.
  /// Errors: invalid_data  bad JSON, a field missing, of a wrong type or value, or contradicting another
  ///         unsupported   an unknown method, format or algorithm (the message lists the known ones), or a scheme that
  ///                       no product supports (the message says why)
  static QuantizationConfig parse(const std::string& json, const std::string& origin);
};

}  // namespace moecl
