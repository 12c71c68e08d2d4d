// Writes the operators as Python functions: signatures and docstrings. host/python/src/moecl/_operator.py calls them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "host/npu/operator.hpp"
#include "tools/operators_page.hpp"

namespace moecl::cli {
namespace {

using npu::FieldInfo;
using npu::FieldKind;

constexpr std::size_t python_columns = 120;

/// swiglu for npu_swiglu, c_ascend_swiglu for _C_ascend.npu_swiglu.
std::string function_name(const npu::Operator& about) { return c_operator_name(about.name).substr(6); }

/// MoeInitRouting for moe_init_routing.
std::string class_name(std::string_view function) {
  std::string text;
  bool upper = true;
  for (const char c : function) {
    if (c == '_') {
      upper = true;
      continue;
    }
    text += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return text;
}

/// Breaks a text into lines; lines after the first are indented further.
std::string wrapped(std::string text, std::string_view indent, std::string_view hanging) {
  for (std::size_t i = 0; (i = text.find('\\', i)) != std::string::npos; i += 2) text.insert(i, "\\");
  std::string lines;
  for (std::string_view at = indent, rest = text; !rest.empty(); at = hanging) {
    const std::size_t room = python_columns - at.size();
    const std::size_t size = rest.size() <= room ? rest.size() : rest.rfind(' ', room);
    lines += fmt::format("{}{}\n", at, rest.substr(0, size));
    rest.remove_prefix(std::min(size + 1, rest.size()));
  }
  return lines;
}

bool optional(const FieldInfo& field) { return field.text.rfind("optional", 0) == 0; }

std::string type_of(const FieldInfo& field) {
  const std::string_view c = field.c_type;
  const bool none = field.by_default == "none";
  if (field.kind != FieldKind::parameter) {
    const std::string type = field.list ? "Arrays" : "Array";
    return field.kind == FieldKind::input && optional(field) ? type + " | None" : type;
  }
  if (!field.choices.empty() || c == "const char*") return "str";
  if (c == "double") return "float";
  if (c == "moecl_int_list") return "Sequence[int]";
  if (c == "int64_t") return none ? "int | None" : "int";
  return std::string_view(field.c_values) == "1 or 0" ? "bool" : "DType | None";
}

std::string default_of(const FieldInfo& field) {
  const std::string type = type_of(field);
  if (type == "str") return '"' + field.by_default + '"';
  if (field.kind == FieldKind::input || field.by_default == "none") return "None";
  if (type == "bool") return field.by_default == "true" ? "True" : "False";
  if (type == "Sequence[int]") return "()";
  if (type == "float" && field.by_default.find_first_of(".e") == std::string::npos) return field.by_default + ".0";
  return field.by_default;
}

/// The items of a call, with a line break between items where a line is full.
std::string listed(std::string text, const std::vector<std::string>& items, std::string_view end) {
  const std::string hanging = "        ";
  std::size_t column = text.size() - (text.rfind('\n') + 1);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : std::string(end));
    if (column + 1 + item.size() > python_columns) {
      text += "\n" + hanging;
      column = hanging.size();
    } else if (i != 0) {
      text += ' ';
      ++column;
    }
    text += item;
    column += item.size();
  }
  return text;
}

std::string python_operator(const npu::Operator& about) {
  const std::string function = function_name(about);
  std::vector<std::string> needed, chosen, passed, out_names, kinds;
  std::string arguments, results;
  for (const FieldInfo& field : about.fields) {
    const char kind = field.kind == FieldKind::input ? 'i' : field.kind == FieldKind::output ? 'o' : 'p';
    std::string choices;
    for (const std::string& choice : field.choices) choices += " " + (choice.empty() ? std::string("default") : choice);
    kinds.push_back(fmt::format("\"{} {}{}\"", kind, field.name, choices));
    std::string text = field.text;
    for (const char* before = ": "; const std::string& choice : field.choices)
      if (!choice.empty()) text += std::exchange(before, ", ") + choice;
    const std::string line = wrapped(field.name + ": " + text, "        ", "            ");
    if (kind == 'o') {
      out_names.push_back(field.name);
      results += line;
      continue;
    }
    arguments += line;
    passed.push_back(field.name);
    if (kind == 'i' && !optional(field))
      needed.push_back(fmt::format("{}: {}", field.name, type_of(field)));
    else
      chosen.push_back(fmt::format("{}: {} = {}", field.name, type_of(field), default_of(field)));
  }
  const bool several = out_names.size() > 1;
  const std::string result = several ? class_name(function) : "Array";
  std::string text;
  if (several) {
    text += fmt::format("\n\nclass {}(NamedTuple):\n", result);
    text += fmt::format("    \"\"\"What {} gives; None where it has no such output.\"\"\"\n\n", function);
    for (const FieldInfo& field : about.fields)
      if (field.kind == FieldKind::output) text += fmt::format("    {}: {}\n", field.name, type_of(field));
  }
  std::vector<std::string> made = {'"' + function + '"', several ? result : "None",
                                   about.collective ? "True" : "False"};
  made.insert(made.end(), kinds.begin(), kinds.end());
  text += listed(fmt::format("\n\n_{} = Operator(", function), made, ")\n");

  std::vector<std::string> signature = needed;
  if (about.collective) signature.insert(signature.begin(), "on: Communicator");
  signature.emplace_back("*");
  signature.insert(signature.end(), chosen.begin(), chosen.end());
  if (!about.collective) signature.emplace_back("on: Stream | None = None");
  text += listed(fmt::format("\n\ndef {}(", function), signature, fmt::format(") -> {}:\n", result));
  text += wrapped(fmt::format("\"\"\"{}: {}.", about.name, about.summary), "    ", "    ");
  text += "\n    Args:\n" + arguments;
  if (about.collective)
    text += "        on: this rank's communicator; all ranks call\n";
  else
    text += "        on: the stream; None: the default one\n";
  text += "\n    Returns:\n" + results;
  text += "\n" + wrapped(fmt::format("Rounding: {}.", about.rounding), "    ", "    ");
  for (const npu::Refusal& refusal : about.refused)
    text += wrapped(fmt::format("Refused: {}: {}.", refusal.what, refusal.why), "    ", "        ");
  text += "    \"\"\"\n";
  passed.insert(passed.begin(), "on");
  return text + listed(fmt::format("    return _{}(", function), passed, ")\n");
}

}  // namespace

std::string operators_python() {
  std::string text =
      "\"\"\"The operators of an Ascend NPU for Mixture-of-Experts, computed by moecl.\n\n"
      "Arrays are NumPy's, torch's on the CPU, pyopencl's, or come by DLPack. Results are torch tensors where the "
      "first\n"
      "array is torch's, else NumPy arrays. Commands of other queues that write a pyopencl array must have completed.\n"
      "OPERATORS.md has the same in a page. Written by `moecl op --python`; a test compares it.\n\"\"\"\n"
      "from __future__ import annotations\n\n"
      "from typing import NamedTuple, Sequence\n\n"
      "from moecl._arrays import Array, Arrays, DType\n"
      "from moecl._operator import Operator\n"
      "from moecl._runtime import Communicator, Stream\n\n__all__ = [\n";
  for (const npu::Operator& about : npu::operators()) text += fmt::format("    \"{}\",\n", function_name(about));
  text += "]\n";
  for (const npu::Operator& about : npu::operators()) text += python_operator(about);
  return text;
}

}  // namespace moecl::cli
