#include "tools/operators_page.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "host/npu/operator.hpp"

namespace moecl::cli {
namespace {

const char* name_of(npu::FieldKind kind) {
  return kind == npu::FieldKind::input ? "input" : kind == npu::FieldKind::parameter ? "parameter" : "output";
}

std::string described(const npu::FieldInfo& field) {
  std::string text = field.text;
  if (field.list) text += " (list)";
  if (field.kind == npu::FieldKind::parameter) text += fmt::format("; default {}", field.by_default);
  return text;
}

/// A cell of a Markdown table.
std::string cell(std::string text) {
  for (std::size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, "\\");
  return text;
}

}  // namespace

std::string operators_list() {
  std::string text;
  for (const npu::Operator& about : npu::operators()) {
    text += fmt::format("{}: {}\n", about.name, about.summary);
    for (const npu::FieldInfo& field : about.fields)
      text += fmt::format("  {:9}  {}: {}\n", name_of(field.kind), field.name, described(field));
  }
  return text;
}

std::string operators_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const npu::Operator& about : npu::operators()) {
    nlohmann::ordered_json fields = nlohmann::ordered_json::array(), refused = nlohmann::ordered_json::array();
    for (const npu::FieldInfo& field : about.fields) {
      nlohmann::ordered_json row = {{"kind", name_of(field.kind)}, {"name", field.name}, {"about", field.text}};
      if (field.kind == npu::FieldKind::parameter) row["default"] = field.by_default;
      if (field.list) row["list"] = true;
      fields.push_back(std::move(row));
    }
    for (const npu::Refusal& refusal : about.refused) refused.push_back({{"what", refusal.what}, {"why", refusal.why}});
    list.push_back({{"operator", about.name},
                    {"about", about.summary},
                    {"rounding", about.rounding},
                    {"fields", fields},
                    {"refused", refused}});
  }
  return list.dump(2) + "\n";
}

std::string operators_page() {
  std::string text =
      "# Operators\n\n"
      "The operators that an Ascend NPU offers for Mixture-of-Experts, as moecl has them. Written by `moecl op "
      "--page`; a test "
      "compares it.\n\n"
      "In C++ they are functions of `moecl::npu` without `npu_` and `_C_ascend.`'s dot, in C functions `moecl_*`; "
      "`moecl op` runs recorded calls of them.\nAn absent optional input is the operator's None. Outputs are written "
      "only where the operator defines "
      "them.\n";
  for (const npu::Operator& about : npu::operators()) {
    text += fmt::format("\n## {}\n\n{}.\n\n| | name | what |\n| --- | --- | --- |\n", about.name, about.summary);
    for (const npu::FieldInfo& field : about.fields)
      text += fmt::format("| {} | `{}` | {} |\n", name_of(field.kind), field.name, cell(described(field)));
    text += fmt::format("\nRounding: {}.\n", about.rounding);
    if (!about.refused.empty()) text += "\nRefused:\n\n";
    for (const npu::Refusal& refusal : about.refused) text += fmt::format("- {}: {}.\n", refusal.what, refusal.why);
  }
  return text;
}

}  // namespace moecl::cli
