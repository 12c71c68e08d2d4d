#include "host/checkpoint/family_config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/model_families.hpp"
#include "host/checkpoint/name_template.hpp"
#include "host/checkpoint/quantization_methods.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::int64_t max_layers = 100'000;  // bounds loops over the layers of a hostile config

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

// Source: transformers, activations.py (ACT2CLS)
constexpr Named<ActivationFunction> activations[] = {
    {"silu", ActivationFunction::silu},
    {"swish", ActivationFunction::silu},
    {"gelu", ActivationFunction::gelu},
    {"gelu_new", ActivationFunction::gelu_tanh},
    {"gelu_pytorch_tanh", ActivationFunction::gelu_tanh},
    {"relu2", ActivationFunction::relu2},
    {"relu", ActivationFunction::relu},
    {"swigluoai", ActivationFunction::swigluoai},
};
constexpr Named<ScoreFunction> score_functions[] = {{"softmax", ScoreFunction::softmax},
                                                    {"sigmoid", ScoreFunction::sigmoid},
                                                    {"none", ScoreFunction::none},
                                                    {"sqrtsoftplus", ScoreFunction::sqrtsoftplus},
                                                    {"sparse_mixer", ScoreFunction::sparse_mixer}};
constexpr Named<DType> dtypes[] = {{"float32", DType::f32},
                                   {"bfloat16", DType::bf16},
                                   {"float16", DType::f16},
                                   {"float8_e4m3fn", DType::f8_e4m3},
                                   {"float8_e5m2", DType::f8_e5m2}};

template <class Value, std::size_t n>
Value look_up(const Named<Value> (&rows)[n], const std::string& name, const char* what, const std::string& origin) {
  std::vector<std::string_view> known;
  for (const auto& row : rows) {
    if (row.name == name) return row.value;
    known.push_back(row.name);
  }
  fail(ErrorCode::unsupported, "{}: {} \"{}\" is not one of {}", origin, what, name, fmt::join(known, ", "));
}

const ModelFamily& family_of(const ConfigFields& fields) {
  const std::string model_type = fields.text({{"model_type"}});
  if (const RefusedFamily* refused = find_refused_family(model_type); refused != nullptr)
    fail(ErrorCode::unsupported, "{}: model_type \"{}\": {}", fields.origin(), model_type, refused->why);
  const ModelFamily* family = find_family(model_type);
  if (family == nullptr)
    fail(ErrorCode::unsupported,
         "{}: model_type \"{}\" is not one of {}; a router spec (host/ROUTER_SPEC.md) describes another one by its "
         "hidden size, number of experts, experts per token, expert width, scoring function, order, groups, "
         "normalisation and scaling, by its activation and shared experts, by which layers have experts, and by its "
         "tensor names",
         fields.origin(), model_type, fmt::join(model_type_names(), ", "));
  return *family;
}

bool renormalises(const ModelFamily& family, const ConfigFields& fields) {
  const char* norm = family.weight_norm.names[0];
  if (norm == nullptr) return fields.boolean(family.renormalise);
  if (fields.is_null(norm)) return false;
  if (const double p = fields.number(family.weight_norm); p != 1)
    fail(ErrorCode::unsupported, "{}: \"{}\" is {}: weights are divided by their sum, the norm of 1, and by no other",
         fields.origin(), norm, p);
  return true;
}

RouterSpec parse_router(const ModelFamily& family, const SelectionMethod& method, const ConfigFields& fields) {
  RouterSpec router;
  router.top_k = static_cast<std::int32_t>(fields.size(family.top_k));
  if (method.grouped) {
    router.groups = static_cast<std::int32_t>(fields.size(family.groups));
    router.kept_groups = static_cast<std::int32_t>(fields.size(family.kept_groups));
  }
  router.group_score = method.group_score;
  router.score = score_function(fields.text(family.scoring), fields.origin());
  router.order = router.score == ScoreFunction::sparse_mixer ? ScoreOrder::after_top_k : family.order;
  if (router.score == ScoreFunction::sparse_mixer)
    router.mixer_jitter = static_cast<float>(fields.number(family.mixer_jitter));
  router.renormalise = renormalises(family, fields) && (router.top_k > 1 || family.renormalise_single);
  router.renormalise_epsilon = family.renormalise_epsilon;
  router.renormalise_minimum = static_cast<float>(fields.number(family.renormalise_minimum));
  router.scaling_factor = static_cast<float>(fields.number(family.scaling));
  router.weight_on_input = family.weight_on_input;
  return router;
}

Activation parse_activation(const ModelFamily& family, const ConfigFields& fields) {
  Activation activation;
  activation.function = family.activation;
  if (family.activation == ActivationFunction::silu)
    activation.function = activation_function(fields.text(family.activation_name), fields.origin());
  activation.gated = family.expert_names[0].matrices[0] != nullptr;
  if (family.activation == ActivationFunction::swigluoai) {
    activation.alpha = static_cast<float>(fields.number(family.activation_alpha));
    activation.limit = static_cast<float>(fields.number(family.activation_limit));
  }
  return activation;
}

std::int64_t parse_shared_width(const ModelFamily& family, const ConfigFields& fields) {
  const std::int64_t count = fields.is_null(family.shared_experts.names[0]) ? 0 : fields.integer(family.shared_experts);
  if (count == 0) return 0;
  const std::int64_t width = fields.integer(family.shared_width);
  if (count < 0 || width < 0 || width > INT32_MAX || (width > 0 && count > INT32_MAX / width))
    fail(ErrorCode::invalid_data, "{}: {} shared experts of width {}", fields.origin(), count, width);
  return count * width;
}

ExpertTensorNames network_names(const ModelFamily& family, const NetworkNames& network, bool routed) {
  const auto name = [&](const char* text, std::size_t matrix) {
    if (text == nullptr || network.matrices[matrix] == nullptr) return std::string();
    return substitute(family.prefix + std::string(text), "matrix", network.matrices[matrix]);
  };
  ExpertTensorNames names;
  names.gate = name(network.name, 0);
  names.up = name(network.name, 1);
  names.down = name(network.name, 2);
  names.gate_bias = name(network.bias, 0);
  names.up_bias = name(network.bias, 1);
  names.down_bias = name(network.bias, 2);
  names.stacked = routed && std::string_view(network.name).find("{expert}") == std::string_view::npos;
  names.transposed = network.transposed;
  names.alternating = network.alternating;
  names.flat = network.flat;
  return names;
}

/// The name of the bias that belongs to a weight: ".bias" in place of ".weight".
std::string bias_beside(const std::string& weight) {
  constexpr std::string_view suffix = ".weight";
  return weight.substr(0, weight.size() - suffix.size()) + ".bias";
}

MoeTensorNames tensor_names(const ModelFamily& family, const MoeShape& shape) {
  const auto name = [&](const char* text) { return family.prefix + std::string(text); };
  MoeTensorNames names;
  names.router = name(family.router_name);
  if (shape.router_bias) names.router_bias = name(family.router_bias_name);
  if (shape.selection_bias) names.selection_bias = name(family.selection_bias_name);
  for (const NetworkNames& form : family.expert_names)
    if (form.name != nullptr) names.experts.push_back(network_names(family, form, true));
  if (shape.shared_intermediate > 0) names.shared = network_names(family, family.shared_names, false);
  if (shape.shared_bias) {
    if (!names.shared.gate.empty()) names.shared.gate_bias = bias_beside(names.shared.gate);
    names.shared.up_bias = bias_beside(names.shared.up);
    names.shared.down_bias = bias_beside(names.shared.down);
  }
  if (shape.shared_gate) names.shared_gate = name(family.shared_gate_name);
  return names;
}

SparseLayers parse_sparse_layers(const ModelFamily& family, const ConfigFields& fields, int layers) {
  SparseLayers sparse;
  for (const char* name : family.sparse_layers_fields)
    if (name != nullptr && !sparse.only) sparse.only = fields.layers(name, family.sparse_layer_types);
  if (!sparse.only) sparse.only = fields.flagged(family.sparse_step.names[0], layers);
  if (sparse.only) return sparse;
  sparse.first = fields.integer(family.first_sparse_layer);
  if (const std::int64_t last = fields.integer(family.last_sparse_layer); last != -1) sparse.last = last;
  sparse.step = fields.size(family.sparse_step);
  const std::int64_t phase = fields.integer(family.sparse_phase);
  sparse.phase = (phase % sparse.step + sparse.step) % sparse.step;
  if (family.dense_layers_field != nullptr) sparse.dense = fields.integers(family.dense_layers_field);
  if (sparse.first < 0)
    fail(ErrorCode::invalid_data, "{}: \"{}\" is {}", fields.origin(), family.first_sparse_layer.names[0],
         sparse.first);
  std::sort(sparse.dense.begin(), sparse.dense.end());
  return sparse;
}

/// The number of layers by the length of the family's list of layer types; 0 where there is none.
std::int64_t typed_layers(const std::string& model_type, const ConfigFields& fields) {
  const ModelFamily* family = find_family(model_type);
  if (family == nullptr || !family->layers_by_type) return 0;
  for (const char* name : family->sparse_layers_fields)
    if (const std::optional<std::int64_t> layers = fields.length(name); layers) return *layers;
  return 0;
}

QuantizationConfig find_quantization(const nlohmann::json& config, const std::string& origin) {
  const nlohmann::json* quantization = find_member(config, "quantization_config");
  if (quantization == nullptr) return {};
  if (!quantization->is_object()) fail(ErrorCode::invalid_data, "{}: \"quantization_config\" is not an object", origin);
  return parse_quantization(*quantization, origin + ": quantization_config");
}

}  // namespace

ScoreFunction score_function(const std::string& name, const std::string& origin) {
  return look_up(score_functions, name, "scoring function", origin);
}
ActivationFunction activation_function(const std::string& name, const std::string& origin) {
  return look_up(activations, name, "activation", origin);
}
DType config_dtype(const std::string& name, const std::string& origin) {
  return look_up(dtypes, name, "dtype", origin);
}

void expect_sound(const MoeShape& shape, const std::string& origin) {
  const RouterSpec& router = shape.router;
  const std::int32_t experts = shape.experts, groups = router.groups, kept = router.kept_groups;
  if (router.top_k > experts)
    fail(ErrorCode::invalid_data, "{}: {} experts per token of only {}", origin, router.top_k, experts);
  if (experts % groups != 0)
    fail(ErrorCode::invalid_data, "{}: {} experts do not form {} equal groups", origin, experts, groups);
  if (kept > groups) fail(ErrorCode::invalid_data, "{}: {} of only {} groups kept", origin, kept, groups);
  if (router.top_k > kept * (experts / groups))
    fail(ErrorCode::invalid_data, "{}: {} experts per token, {} kept groups of {} have fewer", origin, router.top_k,
         kept, experts / groups);
  if (router.weight_on_input && router.top_k > 1)
    fail(ErrorCode::unsupported,
         "{}: {} experts per token: weights multiply the experts' input, of which a token has one", origin,
         router.top_k);
  if (groups > 1 && router.group_score == GroupScore::sum_of_top_2 && experts / groups < 2)
    fail(ErrorCode::invalid_data, "{}: groups of 1 expert have no sum of two scores", origin);
  const auto expect = [&](const char* what, float value, bool sound, const char* range) {
    if (!std::isfinite(value) || !sound)
      fail(ErrorCode::invalid_data, "{}: {} {} is not {} and finite", origin, what, value, range);
  };
  expect("scaling factor", router.scaling_factor, router.scaling_factor > 0, "above 0");
  expect("mixer jitter", router.mixer_jitter, router.mixer_jitter >= 0, "at least 0");
  expect("least sum of weights", router.renormalise_minimum, router.renormalise_minimum >= 0, "at least 0");
  expect("epsilon of the sum of weights", router.renormalise_epsilon, router.renormalise_epsilon >= 0, "at least 0");
  expect("activation alpha", shape.activation.alpha, true, "a number");
  expect("activation limit", shape.activation.limit, true, "a number");
}

ConfigFields TextConfig::fields(const std::string& origin) const {
  return {*config, member.empty() ? origin : origin + ": " + member};
}

bool is_known_family(const nlohmann::json& config, const std::string& origin) {
  return find_family(find_text_config(config, origin).fields(origin).text({{"model_type"}, ""})) != nullptr;
}

TextConfig find_text_config(const nlohmann::json& config, const std::string& origin) {
  const nlohmann::json* model_type = find_member(config, "model_type");
  const WrapperFamily* wrapper =
      model_type != nullptr && model_type->is_string() ? find_wrapper(model_type->get<std::string>()) : nullptr;
  if (wrapper == nullptr) return {&config, "", "model."};
  const nlohmann::json* member = find_member(config, wrapper->member);
  if (member == nullptr || !member->is_object())
    fail(ErrorCode::invalid_data, "{}: a \"{}\" model, but no object \"{}\" describes its language model", origin,
         wrapper->model_type, wrapper->member);
  return {member, wrapper->member, wrapper->root};
}

ModelConfig read_common_config(const nlohmann::json& config, const std::string& origin) {
  const TextConfig text = find_text_config(config, origin);
  const ConfigFields whole(config, origin), fields = text.fields(origin);
  ModelConfig result;
  result.family = fields.text({{"model_type"}, ""});
  const std::int64_t layers = fields.integer({layers_field.names, typed_layers(result.family, fields)});
  if (layers < 0 || layers > max_layers)
    fail(ErrorCode::invalid_data, "{}: {} layers, not from 1 to {}", origin, layers, max_layers);
  result.num_layers = static_cast<int>(layers);
  const Field<const char*> dtype_field{{"torch_dtype", "dtype"}, ""};
  std::string dtype = fields.text(dtype_field);
  if (dtype.empty()) dtype = whole.text(dtype_field);
  if (!dtype.empty()) result.dtype = config_dtype(dtype, origin);
  result.moe.family = result.family;
  result.moe.quantization = find_quantization(config, origin);
  if (!result.moe.quantization.present()) result.moe.quantization = find_quantization(*text.config, fields.origin());
  if (fields.integer({hidden_field.names, 0}) != 0) result.moe.shape.hidden = fields.size(hidden_field);
  return result;
}

namespace {

/// Reads one layer from config.json. `moe` already has what does not depend on the family.
MoeLayerConfig read_layer(const ModelFamily& family, const TextConfig& text, const ConfigFields& fields,
                          MoeLayerConfig moe) {
  const std::string selection = fields.text(family.selection);
  const SelectionMethod* method = find_selection_method(selection);
  if (method == nullptr)
    fail(ErrorCode::unsupported, "{}: unknown selection method \"{}\"", fields.origin(), selection);
  MoeShape& shape = moe.shape;
  shape.hidden = fields.size(hidden_field);
  shape.intermediate = fields.size(family.intermediate);
  shape.experts = static_cast<std::int32_t>(fields.size(family.experts));
  shape.router = parse_router(family, *method, fields);
  shape.router_bias = family.router_bias_name != nullptr;
  shape.selection_bias = method->bias && fields.boolean(family.selection_bias);
  shape.activation = parse_activation(family, fields);
  shape.expert_bias = family.expert_names[0].bias != nullptr;
  shape.shared_intermediate = parse_shared_width(family, fields);
  shape.shared_gate = family.shared_gate_name != nullptr && shape.shared_intermediate > 0;
  shape.shared_bias = shape.shared_intermediate > 0 && fields.boolean(family.shared_bias);
  expect_sound(shape, fields.origin());

  moe.names = tensor_names(family, shape);
  for_each_name(moe.names, [&](std::string& name) {
    constexpr std::string_view root = "model.";
    if (name.rfind(root, 0) == 0) name = text.root + name.substr(root.size());
  });
  return moe;
}

}  // namespace

ModelConfig read_family_config(const nlohmann::json& config, const std::string& origin) {
  const TextConfig text = find_text_config(config, origin);
  const ConfigFields fields = text.fields(origin);
  const ModelFamily& family = family_of(fields);
  if (family.unknown_field != nullptr && find_member(*text.config, family.unknown_field) != nullptr)
    fail(ErrorCode::unsupported, "{}: \"{}\" asks for what no layer here computes", fields.origin(),
         family.unknown_field);
  ModelConfig result = read_common_config(config, origin);
  if (result.num_layers == 0) fields.size(layers_field);  // fails with a message about the field
  result.sparse = parse_sparse_layers(family, fields, result.num_layers);

  const auto layer = [&](int number) {
    return read_layer(family, text, fields.at_layer(number, result.num_layers), result.moe);
  };
  int first = 0;
  while (first < result.num_layers && !result.has_experts(first)) ++first;
  const MoeLayerConfig of_first = layer(first < result.num_layers ? first : 0);
  if (fields.vary(result.num_layers))
    for (int number = first + 1; number < result.num_layers; ++number)
      if (result.has_experts(number)) result.varied.emplace(number, layer(number));
  result.moe = of_first;
  return result;
}

}  // namespace moecl
