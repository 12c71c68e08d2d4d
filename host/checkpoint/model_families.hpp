#pragma once
// The differences between model families, as data: a new family is a new row of the table, not a branch.
#include <moecl/gated_activation.hpp>
#include <moecl/router_spec.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace moecl {

/// A value of config.json: the member with one of `names`. If several of them are present, they must agree. If none is
/// present, the value is `fallback`; without a fallback that is an error. A field without names is a constant of the
/// family. "a.b" names a member of a member. A JSON null counts as absent. Of a list with one value per layer, the
/// layer's own value is taken.
template <class T>
struct Field {
  std::array<const char*, 3> names{};
  std::optional<T> fallback{};
};

/// Tensor names of the gate, up and down matrices of a network; a network whose gate has no name is not gated. In
/// `name`, "{matrix}" stands for one of `matrices` and "{expert}" for the expert's number. A tensor without "{expert}"
/// is stacked: it holds the matrices of all experts, one after the other. If gate and up have the same name, they share
/// one tensor, gate first.
struct NetworkNames {
  const char* name = nullptr;
  std::array<const char*, 3> matrices{"gate_proj", "up_proj", "down_proj"};
  bool transposed = false;   ///< stored [in, out]
  bool alternating = false;  ///< rows of gate and up alternate in the tensor that they share
  const char* bias = nullptr;
  bool flat = false;  ///< all three are [I, H], down too; stacked: [E * I, H]
};

/// One model_type of transformers, or several that differ in no field here. The fallbacks are the defaults of its
/// configuration class in transformers.
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
  Field<double> mixer_jitter{{}, 0.0};          ///< asked for only when the score is sparse_mixer
  Field<bool> renormalise{{}, false};
  Field<double> weight_norm{};     ///< if named, replaces `renormalise`: 1 (the weights' sum) is true, null is false
  bool renormalise_single = true;  ///< renormalise also where a token has only one expert
  float renormalise_epsilon = 0;
  Field<double> renormalise_minimum{{}, 0.0};
  Field<double> scaling{{}, 1.0};
  bool weight_on_input = false;

  ActivationFunction activation = ActivationFunction::silu;  ///< silu: `activation_name` decides
  Field<const char*> activation_name{{"hidden_act"}, "silu"};
  Field<double> activation_alpha{{}, 1.702}, activation_limit{{}, 7.0};  ///< asked for only with swigluoai

  Field<std::int64_t> shared_experts{{}, 0};  ///< how many; null in config.json: none
  Field<std::int64_t> shared_width{};         ///< I of one; all of them act as one expert of the summed width
  Field<bool> shared_bias{{}, false};         ///< the shared experts' three products have biases

  Field<std::int64_t> first_sparse_layer{{}, 0};
  Field<std::int64_t> last_sparse_layer{{}, -1};  ///< -1: the model's last
  Field<std::int64_t> sparse_step{{}, 1};         ///< or a list with 0 or 1 per layer, which decides alone
  Field<std::int64_t> sparse_phase{{}, 0};        ///< layers with layer % step == phase % step have experts
  const char* dense_layers_field = nullptr;       ///< a list of layers without experts
  /// Lists of the layers with experts; if one is present, it decides alone. See ConfigFields::layers.
  std::array<const char*, 2> sparse_layers_fields{};
  std::array<const char*, 2> sparse_layer_types{"sparse"};  ///< their types in these lists and patterns
  bool layers_by_type = false;  ///< an absent number of layers is the length of a field of `sparse_layers_fields`
  const char* unknown_field = nullptr;  ///< if present, config.json asks for what no layer here computes

  /// Tensor names. `prefix` is put in front of all others; "{layer}" stands for the layer's number.
  const char* prefix = "model.layers.{layer}.";
  const char* router_name = "mlp.gate.weight";
  const char* router_bias_name = nullptr;
  const char* selection_bias_name = "mlp.gate.e_score_correction_bias";
  bool selection_bias_row = false;             ///< stored as [1, E], which transformers demands
  std::array<NetworkNames, 3> expert_names{};  ///< the released form, then others that checkpoints may have
  NetworkNames shared_names{};
  const char* shared_gate_name = nullptr;
};

/// A model_type whose config.json keeps the language model's fields in `member`, and whose tensor names begin with
/// `root`.
struct WrapperFamily {
  const char* model_type;
  const char* member;  ///< "a.b": member b of member a
  const char* root;    ///< replaces the leading "model." of the text model's tensor names
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

/// Whether one tensor holds the matrices of all experts.
bool is_stacked(const NetworkNames& names);
/// Whether the experts are stacked in every form that they may have.
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
