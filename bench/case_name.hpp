#pragma once
// The names of benchmarks: their parts, and the order in which people expect them.
#include <string>

namespace moecl::bench {

/// The parts of a name such as "layer/qwen3-30b-a3b/bf16/T:16/moecl" or "combine/f32_to_bf16/K:8/T:128".
struct CaseName {
  std::string what;                      ///< the operator: "layer"
  std::string group;                     ///< the parts without a number: "qwen3-30b-a3b bf16"
  std::string row;                       ///< the parts with a number: "T:16"; without any, all parts behind `what`
  std::string implementation = "moecl";  ///< the last part, if it has no number and the part before it has one
  double tokens = 0;                     ///< the value of T; 0: the name has none

  explicit CaseName(const std::string& name);
};

/// Compares digits as numbers: "T:16" comes before "T:128".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace moecl::bench
