#pragma once
#include <memory>
#include <regex>
#include <string>
#include <string_view>

namespace moecl {

/// Names modules of a model, as quantization configs do: "re:" and a regular expression that matches from the start of
/// the name; a name with '*' for any text; or one or several whole components of it, so that "mlp.gate" names
/// "model.layers.0.mlp.gate" but not "model.layers.0.mlp.gate_proj". What is below a named module is named too.
class ModulePattern {
 public:
  /// Errors: invalid_data  no regular expression, or one of more than 4096 characters
  /// @param origin  What messages call the place it comes from.
  ModulePattern(std::string text, const std::string& origin);

  /// Whether the module of that full name is named.
  bool matches(std::string_view module) const;
  /// Whether the text stands anywhere in the name, also inside a component. Source: how AutoAWQ reads its list
  bool occurs_in(std::string_view module) const;
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const std::regex> regex_;
};

}  // namespace moecl
