#pragma once
// The names of benchmarks: their parts, and the order in which people expect them.
#include <string>

namespace moecl::bench {

/// "layer/qwen3-30b-a3b/bf16/T:16/moecl" and "combine/f32_to_bf16/K:8/T:128" in parts.
struct CaseName {
  std::string what;                      ///< the operator: "layer"
  std::string group;                     ///< what has no number: "qwen3-30b-a3b bf16"
  std::string row;                       ///< what has one, "T:16"; the name without `what` where nothing has
  std::string implementation = "moecl";  ///< the last part, if it stands behind a number
  double tokens = 0;                     ///< of T; 0 without

  explicit CaseName(const std::string& name);
};

/// Digits count as numbers: "T:16" stands before "T:128".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace moecl::bench
