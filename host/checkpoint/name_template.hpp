#pragma once
#include <moecl/model_config.hpp>

#include <string>
#include <string_view>

namespace moecl {

/// `text` with the first "{key}" replaced by `value`; without a "{key}" it is unchanged.
inline std::string substitute(std::string text, std::string_view key, std::string_view value) {
  const std::string token = "{" + std::string(key) + "}";
  const auto at = text.find(token);
  if (at != text.npos) text.replace(at, token.size(), value);
  return text;
}

/// Calls `change` with every name of a layer, also with those that are empty.
template <class Change>
void for_each_name(MoeTensorNames& names, Change change) {
  const auto network = [&](ExpertTensorNames& of) {
    for (std::string* name : {&of.gate, &of.up, &of.down, &of.gate_bias, &of.up_bias, &of.down_bias}) change(*name);
  };
  for (std::string* name : {&names.router, &names.router_bias, &names.selection_bias, &names.shared_gate})
    change(*name);
  for (ExpertTensorNames& form : names.experts) network(form);
  network(names.shared);
}

}  // namespace moecl
