#pragma once
#include <memory>
#include <regex>
#include <string>
#include <string_view>

namespace moecl {

/// A pattern that names modules of a model, as quantization configs write them. It is one of: "re:" and a regular
/// expression that matches from the start of a module's name; a name with '*' for any text; or one or several whole
/// components of a name, so that "mlp.gate" names "model.layers.0.mlp.gate" but not "model.layers.0.mlp.gate_proj".
/// A pattern that names a module also names the modules below it.
class ModulePattern {
 public:
  /// Errors: invalid_data  the regular expression is invalid, or has more than 4096 characters
  /// @param origin  What messages call the source of the pattern.
  ModulePattern(std::string text, const std::string& origin);

  /// Whether the pattern names the module of that full name.
  bool matches(std::string_view module) const;
  /// Whether the text occurs anywhere in the name, also inside a component. Source: how AutoAWQ reads its list
  bool occurs_in(std::string_view module) const;
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const std::regex> regex_;
};

}  // namespace moecl
