#pragma once
// What tells one model family from another, as data: a new family is a new row of the table, not a branch.
#include <moecl/router_spec.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moecl {

/// A value of config.json: the member of one of these names (of several, all must agree), else `fallback`; neither is
/// an error. Without a name it is a constant of the family. A JSON null counts as absent.
template <class T>
struct Field {
  std::array<const char*, 2> names{};
  std::optional<T> fallback{};
};

/// One model_type of transformers; defaults are those of its configuration class.
struct ModelFamily {
  const char* model_type;

  Field<std::int64_t> experts;       ///< E
  Field<std::int64_t> intermediate;  ///< I of one routed expert

  Field<const char*> scoring{{}, "softmax"};
  Field<const char*> selection{{}, "greedy"};   ///< a row of `selection_methods`
  Field<std::int64_t> groups{}, kept_groups{};  ///< asked for only when the selection method has groups
  Field<bool> renormalise{};
  /// The family's readers do not agree on what norm_topk_prob true means, and no released model says so.
  bool renormalise_disputed = false;
  float renormalise_epsilon = 0;
  Field<double> scaling{{}, 1.0};

  Field<std::int64_t> shared_experts{{}, 0};  ///< how many; null in config.json: none
  Field<std::int64_t> shared_width{};         ///< I of one of them; together they act as one of the summed width
  bool shared_gate = false;

  Field<std::int64_t> first_sparse_layer{{}, 0};
  Field<std::int64_t> sparse_step{{}, 1};
  std::int64_t sparse_offset = 0;            ///< layers with (layer + offset) % step == 0 have experts
  const char* dense_layers_field = nullptr;  ///< a list of layers without experts

  /// Tensor names. "{layer}" and "{expert}" stand for numbers, "{matrix}" for one of `matrices`: gate, up, down.
  const char* router_name;
  const char* selection_bias_name = nullptr;
  const char* expert_name;
  const char* shared_name = nullptr;
  const char* shared_gate_name = nullptr;
  std::array<const char*, 3> matrices{"gate_proj", "up_proj", "down_proj"};
};

/// How the experts are chosen from the scores: DeepSeek's topk_method.
struct SelectionMethod {
  const char* name;
  bool grouped;
  GroupScore group_score;
  bool bias;
};

/// nullptr when there is no such family.
const ModelFamily* find_family(std::string_view model_type);
std::vector<const char*> family_names();
/// nullptr when there is no such method.
const SelectionMethod* find_selection_method(std::string_view name);

}  // namespace moecl
