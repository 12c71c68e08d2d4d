#pragma once
// What tells one model family from another, as data: a new family is a new row of the table, not a branch.
#include <moecl/gated_activation.hpp>
#include <moecl/router_spec.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace moecl {

/// A value of config.json: the member of one of these names (of several, all must agree), else `fallback`; neither is
/// an error. Without a name it is a constant of the family; "a.b" is a member of a member. A JSON null counts as
/// absent; of a list with a value for each layer it is the layer's.
template <class T>
struct Field {
  std::array<const char*, 3> names{};
  std::optional<T> fallback{};
};

/// Where the gate, up and down matrices of a network stand; without a name for the gate it has none. In `name`
/// "{expert}" stands for the expert's number (without it a tensor is stacked: all experts', one after the other) and
/// "{matrix}" for one of `matrices`; gate and up of the same name are one tensor, gate first.
struct NetworkNames {
  const char* name = nullptr;
  std::array<const char*, 3> matrices{"gate_proj", "up_proj", "down_proj"};
  bool transposed = false;   ///< stored [in, out]
  bool alternating = false;  ///< rows of gate and up alternate in their one tensor
  const char* bias = nullptr;
  bool flat = false;  ///< each is [I, H], down too; stacked: [E * I, H]
};

/// One model_type of transformers (or several that differ in no field here); defaults are those of its configuration
/// class.
struct ModelFamily {
  std::array<const char*, 4> model_types{};

  Field<std::int64_t> experts{{"num_experts", "num_local_experts"}};  ///< E
  Field<std::int64_t> top_k{{"num_experts_per_tok"}};                 ///< K
  Field<std::int64_t> intermediate{{"moe_intermediate_size"}};        ///< I of one routed expert

  Field<const char*> scoring{{}, "softmax"};
  ScoreOrder order = ScoreOrder::before_top_k;
  Field<const char*> selection{{}, "greedy"};   ///< a row of `selection_methods`
  Field<std::int64_t> groups{}, kept_groups{};  ///< asked for only when the selection method has groups
  Field<bool> selection_bias{{}, true};         ///< asked for only when the selection method has a bias
  Field<double> mixer_jitter{{}, 0.0};          ///< asked for only of sparse mixers
  Field<bool> renormalise{{}, false};
  Field<double> weight_norm{};     ///< with a name instead of `renormalise`: 1 is the sum of the weights, null is false
  bool renormalise_single = true;  ///< the weight of the only expert of a token as well
  float renormalise_epsilon = 0;
  Field<double> renormalise_minimum{{}, 0.0};
  Field<double> scaling{{}, 1.0};
  bool weight_on_input = false;

  ActivationFunction activation = ActivationFunction::silu;  ///< silu: or what `activation_name` says
  Field<const char*> activation_name{{"hidden_act"}, "silu"};
  Field<double> activation_alpha{{}, 1.702}, activation_limit{{}, 7.0};  ///< asked for only of swigluoai

  Field<std::int64_t> shared_experts{{}, 0};  ///< how many; null in config.json: none
  Field<std::int64_t> shared_width{};         ///< I of one of them; together they act as one of the summed width
  Field<bool> shared_bias{{}, false};         ///< of the shared experts' three products

  Field<std::int64_t> first_sparse_layer{{}, 0};
  Field<std::int64_t> last_sparse_layer{{}, -1};  ///< -1: the model's last
  Field<std::int64_t> sparse_step{{}, 1};         ///< or a list that says 0 or 1 of each layer, and then all
  Field<std::int64_t> sparse_phase{{}, 0};        ///< layers with layer % step == phase % step have experts
  const char* dense_layers_field = nullptr;       ///< a list of layers without experts
  /// Of those with experts, which then say it all; see ConfigFields::layers.
  std::array<const char*, 2> sparse_layers_fields{};
  std::array<const char*, 2> sparse_layer_types{"sparse"};  ///< what lists of types and patterns call them
  bool layers_by_type = false;  ///< without a number of layers it is that of the types in `sparse_layers_fields`
  const char* unknown_field = nullptr;  ///< config.json asks by it for what no layer here computes

  /// Tensor names; `prefix` stands before all others, "{layer}" for the layer's number.
  const char* prefix = "model.layers.{layer}.";
  const char* router_name = "mlp.gate.weight";
  const char* router_bias_name = nullptr;
  const char* selection_bias_name = "mlp.gate.e_score_correction_bias";
  bool selection_bias_row = false;             ///< transformers demands [1, E]
  std::array<NetworkNames, 3> expert_names{};  ///< the released form, then others that checkpoints may have
  NetworkNames shared_names{};
  const char* shared_gate_name = nullptr;
};

/// A model_type whose config.json holds that of a language model in a member, and names its tensors otherwise.
struct WrapperFamily {
  const char* model_type;
  const char* member;  ///< "a.b": of a member
  const char* root;    ///< what the text model's leading "model." becomes
};

/// A model_type that no layer here computes.
struct RefusedFamily {
  const char* model_type;
  const char* why;
};

/// How the experts are chosen from the scores: DeepSeek's topk_method.
struct SelectionMethod {
  const char* name;
  bool grouped;
  GroupScore group_score;
  bool bias;
};

/// All experts' matrices in one tensor.
bool is_stacked(const NetworkNames& names);
/// In every form it may have.
bool has_stacked_experts(const ModelFamily& family);
/// nullptr when there is no such family.
const ModelFamily* find_family(std::string_view model_type);
std::span<const ModelFamily> model_families();
std::span<const WrapperFamily> wrapper_families();
const WrapperFamily* find_wrapper(std::string_view model_type);
std::span<const RefusedFamily> refused_families();
const RefusedFamily* find_refused_family(std::string_view model_type);
/// Every model_type that can be read.
std::vector<const char*> model_type_names();
/// nullptr when there is no such method.
const SelectionMethod* find_selection_method(std::string_view name);

}  // namespace moecl
