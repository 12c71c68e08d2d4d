#include "tools/operators_page.hpp"

#include <moecl/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "host/npu/operator.hpp"

namespace moecl::cli {
namespace {

const char* name_of(npu::FieldKind kind) {
  return kind == npu::FieldKind::input ? "input" : kind == npu::FieldKind::parameter ? "parameter" : "output";
}

std::string text_of(const npu::FieldInfo& field) {
  std::string choices;
  for (const std::string& choice : field.choices)
    if (!choice.empty()) choices += (choices.empty() ? ": " : ", ") + choice;
  return field.text + choices;
}

std::string described(const npu::FieldInfo& field) {
  std::string text = text_of(field);
  if (field.list) text += " (list)";
  if (field.kind == npu::FieldKind::parameter) text += fmt::format("; default {}", field.by_default);
  return text;
}

/// Escapes text for a cell of a Markdown table.
std::string cell(std::string text) {
  for (std::size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, "\\");
  return text;
}

/// Wraps text as lines of a C comment, each with at most 120 columns.
std::string c_comment(std::string_view text, std::string_view indent) {
  constexpr std::size_t columns = 120;
  const std::size_t room = columns - indent.size() - 4;
  std::string lines;
  while (!text.empty()) {
    const std::size_t size = text.size() <= room ? text.size() : text.rfind(' ', room);
    lines += fmt::format("{}/// {}\n", indent, text.substr(0, size));
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  return lines;
}

/// A member of the C struct with its comment; enumerations have numbers, in the order of npu.h.
std::string c_field(const npu::FieldInfo& field) {
  std::string text = field.kind == npu::FieldKind::output ? "out: " + field.text : field.text;
  for (std::size_t i = 0; i < field.choices.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", i, field.choices[i].empty() ? "default" : field.choices[i]);
  if (*field.c_values != '\0') text += fmt::format("; {}", field.c_values);
  return c_comment(text, "  ") + fmt::format("  {} {};\n", field.c_type, field.name);
}

std::string c_operator(const npu::Operator& about) {
  const std::string function = c_operator_name(about.name);
  const char* on = about.collective ? "moecl_communicator* communicator" : "moecl_stream* stream";
  std::string text = c_comment(fmt::format("{}: {}", about.name, about.summary), "");
  text += fmt::format("typedef struct {}_args {{\n  uint64_t size_bytes;\n", function);
  for (const npu::FieldInfo& field : about.fields) text += c_field(field);
  text += fmt::format("}} {0}_args;\nmoecl_status {0}_defaults({0}_args* args);\n", function);
  text +=
      fmt::format("moecl_status {0}_plan(\n    {1}, {0}_args* args, uint64_t* out_workspace_bytes);\n", function, on);
  return text +
         fmt::format(
             "moecl_status {0}(\n    {1}, const {0}_args* args, const moecl_call* call,\n"
             "    uint32_t num_wait_events, struct _cl_event* const* wait_events, struct _cl_event** out_event);\n",
             function, on);
}

}  // namespace

std::string c_operator_name(std::string_view name) {
  constexpr std::string_view space = "_C_ascend.", prefix = "npu_";
  const bool spaced = name.substr(0, space.size()) == space;
  if (spaced) name.remove_prefix(space.size());
  if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  return (spaced ? "moecl_c_ascend_" : "moecl_") + std::string(name);
}

std::string operators_header(const std::string& family) {
  std::string body;
  bool collective = false;
  for (const npu::Operator& about : npu::operators()) {
    if (about.family != family) continue;
    collective = about.collective;
    body += "\n" + c_operator(about);
  }
  if (body.empty()) throw Error(ErrorCode::unsupported, "op: the operators have no family '" + family + "'");
  std::string guard = "MOECL_NPU_" + family + "_H";
  std::transform(guard.begin(), guard.end(), guard.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(
      "#ifndef {0}\n#define {0}\n// Written by `moecl op --header {1}`; a test compares it.\n", guard, family);
  if (collective)
    text +=
        "//\n"
        "// The collective operators: tokens to the ranks that own their experts, and back. Every rank of the\n"
        "// communicator, which stands for group_ep, calls the same operator with its own tensors, on its own stream.\n"
        "// The ranks first agree about the parameters and about who refuses its arguments: then every rank fails,\n"
        "// nothing is enqueued and the group stays whole. The plan is one rank's own affair.\n";
  text += "#include <moecl/npu.h>\n";
  if (collective) text += "#include <moecl/rank_group.h>\n";
  return text + "\n// clang-format off\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n" + body +
         "\n#ifdef __cplusplus\n}\n#endif\n// clang-format on\n#endif\n";
}

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
      nlohmann::ordered_json row = {{"kind", name_of(field.kind)}, {"name", field.name}, {"about", text_of(field)}};
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
