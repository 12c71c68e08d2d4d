#include "tools/families_page.hpp"

#include <moecl/model_shapes.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "host/checkpoint/model_families.hpp"
#include "host/checkpoint/released_form.hpp"

namespace moecl::cli {
namespace {

std::string joined(const std::array<const char*, 3>& names) {
  std::string text;
  for (const char* name : names)
    if (name != nullptr) text += fmt::format("{}`{}`", text.empty() ? "" : " or ", name);
  return text;
}

std::string shown(bool value) { return value ? "true" : "false"; }
std::string shown(const char* value) { return value; }
std::string shown(std::int64_t value) { return std::to_string(value); }
std::string shown(double value) { return fmt::format("{:g}", value); }

/// A field in words: "`norm_topk_prob` (false)", or a constant.
template <class T>
std::string described(const Field<T>& field) {
  const std::string names = joined(field.names);
  if (names.empty()) return field.fallback ? shown(*field.fallback) : "";
  return names + (field.fallback ? " (" + shown(*field.fallback) + ")" : "");
}

template <class T>
bool is_constant(const Field<T>& field, const T& value) {
  return field.names[0] == nullptr && field.fallback == value;
}

std::string model_types(const ModelFamily& family) {
  std::string text;
  for (const char* name : family.model_types)
    if (name != nullptr) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

std::string sizes(const ModelFamily& family) {
  return fmt::format("E {}; K {}; I {}", described(family.experts), described(family.top_k),
                     described(family.intermediate));
}

std::string scores(const ModelFamily& family) {
  std::string text = described(family.scoring);
  if (family.order == ScoreOrder::after_top_k) text += ", of the chosen";
  if (family.mixer_jitter.names[0] != nullptr) text += ", threshold " + described(family.mixer_jitter);
  if (family.router_bias_name != nullptr) text += fmt::format("; router bias `{}`", family.router_bias_name);
  return text;
}

bool may_have_bias(const ModelFamily& family) {
  if (family.selection.names[0] != nullptr) return true;
  return find_selection_method(*family.selection.fallback)->bias && !is_constant(family.selection_bias, false);
}

std::string choice(const ModelFamily& family) {
  std::string text = described(family.selection);
  if (family.groups.names[0] != nullptr)
    text += fmt::format(", groups {} of {}", described(family.kept_groups), described(family.groups));
  if (may_have_bias(family)) {
    text += fmt::format("; bias `{}`", family.selection_bias_name);
    if (family.selection_bias.names[0] != nullptr) text += " if " + described(family.selection_bias);
  }
  return text;
}

std::string weights(const ModelFamily& family) {
  std::string text = "normalised: ";
  text += family.weight_norm.names[0] == nullptr ? described(family.renormalise)
                                                 : "by the norm " + described(family.weight_norm) + ", 1 or null";
  if (!family.renormalise_single) text += " of several";
  if (family.renormalise_epsilon > 0) text += fmt::format(", sum + {:g}", family.renormalise_epsilon);
  if (!is_constant(family.renormalise_minimum, 0.0)) text += ", sum at least " + described(family.renormalise_minimum);
  if (!is_constant(family.scaling, 1.0)) text += "; times " + described(family.scaling);
  return text + (family.weight_on_input ? "; on the experts' input" : "");
}

std::string network(const NetworkNames& names) {
  std::string matrices;
  for (const char* matrix : names.matrices)
    if (matrix != nullptr) matrices += (matrices.empty() ? "" : ", ") + std::string(matrix);
  std::string text = fmt::format("`{}`: {}", names.name, matrices);
  if (is_stacked(names)) text += "; of all experts";
  if (names.transposed) text += "; [in, out]";
  if (names.alternating) text += "; gate and up rows alternate";
  if (names.flat) text += "; each [E * I, H]";
  if (names.matrices[0] == nullptr) text += "; no gate";
  return text + (names.bias != nullptr ? fmt::format("; biases `{}`", names.bias) : "");
}

std::string experts(const ModelFamily& family) {
  std::string text = network(family.expert_names[0]);
  if (family.prefix != std::string_view(ModelFamily().prefix)) text += fmt::format("; names after `{}`", family.prefix);
  if (std::string_view(family.activation_name.names[0]) != ModelFamily().activation_name.names[0])
    text += "; activation " + described(family.activation_name);
  if (family.activation == ActivationFunction::swigluoai)
    text += fmt::format("; swiglu of alpha {}, limit {}", described(family.activation_alpha),
                        described(family.activation_limit));
  return text;
}

std::string shared(const ModelFamily& family) {
  if (family.shared_names.name == nullptr) return "none";
  std::string text = fmt::format("{} x {}; `{}`", described(family.shared_experts), described(family.shared_width),
                                 family.shared_names.name);
  if (family.shared_gate_name != nullptr) text += fmt::format("; gate `{}`", family.shared_gate_name);
  return text + (family.shared_bias.names[0] != nullptr ? "; biases if " + described(family.shared_bias) : "");
}

std::string layers(const ModelFamily& family) {
  std::string text;
  const auto add = [&text](const std::string& rule) { text += (text.empty() ? "" : "; ") + rule; };
  if (!is_constant(family.first_sparse_layer, std::int64_t{0})) add("from " + described(family.first_sparse_layer));
  if (!is_constant(family.last_sparse_layer, std::int64_t{-1}))
    add(fmt::format("to {} (the last)", joined(family.last_sparse_layer.names)));
  if (!is_constant(family.sparse_step, std::int64_t{1}))
    add(is_constant(family.sparse_phase, std::int64_t{-1})
            ? fmt::format("(layer + 1) % {} is 0", described(family.sparse_step))
            : fmt::format("layer % {} is {}", described(family.sparse_step), described(family.sparse_phase)));
  if (family.dense_layers_field != nullptr) add(fmt::format("not in `{}`", family.dense_layers_field));
  for (const char* name : family.sparse_layers_fields)
    if (name != nullptr) add(fmt::format("or `{}`", name));
  return text.empty() ? "all" : text;
}

/// Breaks a list into lines of at most 120 columns.
std::string in_lines(const std::string& list) {
  constexpr std::size_t columns = 120;
  std::string text;
  std::size_t begin = 0;
  while (list.size() - begin > columns) {
    const std::size_t space = list.rfind(' ', begin + columns);
    text += list.substr(begin, space - begin) + "\n";
    begin = space + 1;
  }
  return text + list.substr(begin);
}

}  // namespace

std::string schemes_table() {
  struct Group {  // of families with the same cells
    std::vector<bool> released;
    std::string types;
  };
  const std::vector<NamedScheme> schemes = named_schemes();
  std::vector<Group> groups;
  for (const ModelFamily& family : model_families()) {
    const bool stacked = has_stacked_experts(family), shared = family.shared_names.name != nullptr;
    std::vector<bool> released;
    for (const NamedScheme& named : schemes)
      released.push_back(is_released(named.scheme, stacked, shared, family.expert_names[0].flat));
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.released == released; });
    if (group == groups.end())
      groups.push_back({std::move(released), model_types(family)});
    else
      group->types += ", " + model_types(family);
  }
  std::string text = "| scheme |", line = "| --- |";
  for (std::size_t g = 0; g < groups.size(); ++g) {
    text += fmt::format(" group {} |", g + 1);
    line += " --- |";
  }
  text += "\n" + line + "\n";
  for (std::size_t s = 0; s < schemes.size(); ++s) {
    text += fmt::format("| {} |", schemes[s].name);
    for (const Group& group : groups) text += group.released[s] ? " R Q |" : " Q |";
    text += "\n";
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    text += fmt::format("\nGroup {}:\n{}\n", g + 1, in_lines(groups[g].types));
  return text;
}

std::string families_list() {
  std::string text;
  for (const char* name : model_type_names()) text += fmt::format("{}\n", name);
  return text;
}

std::string families_page() {
  std::string text =
      "# Model families\n\n"
      "Written by `moecl families --page` from the table in host/checkpoint/families, which names the sources; a test "
      "keeps it so.\nNames in `code` are fields of config.json, with the value of an absent one in brackets, and "
      "tensors "
      "of the checkpoint, after `model.layers.{layer}.`.\nE experts, K experts of a token, I intermediate size, "
      "H hidden size. A family's rules are in its section.\n"
      "Every family has a golden in tests/data/goldens or a reference in tests/host/family_layers_test.cpp. Another "
      "one is described by a [router spec](ROUTER_SPEC.md).\n\n"
      "## Which family runs with which scheme\n\n"
      "Schemes have their names in vLLM. R: from a released packed form, which `moecl generate --scheme` writes too. "
      "Q: from plain weights by `moecl run --quantize`.\nA test runs every cell against double precision.\n\n";
  text += schemes_table();
  for (const ModelFamily& family : model_families())
    text += fmt::format(
        "\n## {}\n\n- Sizes: {}\n- Scores: {}\n- Choice: {}\n- Weights: {}\n- Experts: {}\n- Shared experts: {}\n"
        "- Layers with experts: {}\n",
        model_types(family), sizes(family), scores(family), choice(family), weights(family), experts(family),
        shared(family), layers(family));
  text +=
      "\n## Models that hold such a language model\n\n| model_type | its config | \"model.\" of its tensors becomes |\n"
      "| --- | --- | --- |\n";
  for (const WrapperFamily& wrapper : wrapper_families())
    text += fmt::format("| {} | `{}` | `{}` |\n", wrapper.model_type, wrapper.member, wrapper.root);
  text += "\n## Refused\n\n| model_type | why |\n| --- | --- |\n";
  for (const RefusedFamily& family : refused_families())
    text += fmt::format("| {} | {} |\n", family.model_type, family.why);
  text += "\n## Shapes for moecl generate --shape\n\n| name | source |\n| --- | --- |\n";
  for (const ModelShape& shape : model_shapes()) text += fmt::format("| {} | {} |\n", shape.name, shape.source);
  return text;
}

}  // namespace moecl::cli
