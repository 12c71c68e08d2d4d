#pragma once
#include <string_view>
#include <vector>

namespace moecl {

/// A released model's config.json under a short name.
struct ModelShape {
  const char* name;         ///< "qwen3-30b-a3b"
  const char* source;       ///< the model card it comes from
  const char* config_json;  ///< the released fields
};

/// Every shape that has a name here.
std::vector<ModelShape> model_shapes();
/// Errors: invalid_argument  no shape of that name (the message lists them)
ModelShape model_shape(std::string_view name);

}  // namespace moecl
