#include <moecl/model_config.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "host/config_fields.hpp"
#include "host/json_file.hpp"
#include "host/model_families.hpp"
#include "host/name_template.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::int64_t max_layers = 100'000;  // keeps a walk over a hostile config's layers short

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
};
constexpr Named<ScoreFunction> score_functions[] = {{"softmax", ScoreFunction::softmax},
                                                    {"sigmoid", ScoreFunction::sigmoid}};
constexpr Named<DType> dtypes[] = {{"float32", DType::f32},
                                   {"bfloat16", DType::bf16},
                                   {"float16", DType::f16},
                                   {"float8_e4m3fn", DType::f8_e4m3},
                                   {"float8_e5m2", DType::f8_e5m2}};

template <class Value, std::size_t n>
Value look_up(const Named<Value> (&rows)[n], const std::string& name, const char* what, const ConfigFields& fields) {
  std::vector<std::string_view> known;
  for (const auto& row : rows) {
    if (row.name == name) return row.value;
    known.push_back(row.name);
  }
  fail(ErrorCode::unsupported, "{}: {} \"{}\" is not one of {}", fields.origin(), what, name, fmt::join(known, ", "));
}

const ModelFamily& family_of(const ConfigFields& fields) {
  const std::string model_type = fields.text({{"model_type"}});
  const ModelFamily* family = find_family(model_type);
  if (family == nullptr)
    fail(ErrorCode::unsupported,
         "{}: model_type \"{}\" is not one of {}; a family is described by its fields for the number of experts, "
         "experts "
         "per token, expert width, scoring function, selection method, normalisation and scaling, by its shared "
         "experts, by which layers have experts, and by its tensor names",
         fields.origin(), model_type, fmt::join(family_names(), ", "));
  return *family;
}

RouterSpec parse_router(const ModelFamily& family, const SelectionMethod& method, std::int64_t experts,
                        const ConfigFields& fields) {
  RouterSpec router;
  const std::int64_t top_k = fields.size({{"num_experts_per_tok"}});
  const std::int64_t groups = method.grouped ? fields.size(family.groups) : 1;
  const std::int64_t kept = method.grouped ? fields.size(family.kept_groups) : 1;
  if (top_k > experts)
    fail(ErrorCode::invalid_data, "{}: {} experts per token of only {}", fields.origin(), top_k, experts);
  if (experts % groups != 0)
    fail(ErrorCode::invalid_data, "{}: {} experts do not form {} equal groups", fields.origin(), experts, groups);
  if (kept > groups) fail(ErrorCode::invalid_data, "{}: {} of only {} groups kept", fields.origin(), kept, groups);
  if (top_k > kept * (experts / groups))
    fail(ErrorCode::invalid_data, "{}: {} experts per token, {} kept groups of {} have fewer", fields.origin(), top_k,
         kept, experts / groups);
  if (groups > 1 && method.group_score == GroupScore::sum_of_top_2 && experts / groups < 2)
    fail(ErrorCode::invalid_data, "{}: groups of 1 expert have no sum of two scores", fields.origin());
  router.top_k = static_cast<std::int32_t>(top_k);
  router.groups = static_cast<std::int32_t>(groups);
  router.kept_groups = static_cast<std::int32_t>(kept);
  router.group_score = method.group_score;
  router.score = look_up(score_functions, fields.text(family.scoring), "scoring function", fields);
  router.renormalise = fields.boolean(family.renormalise);
  if (router.renormalise && family.renormalise_disputed)
    fail(ErrorCode::unsupported, "{}: what norm_topk_prob true means to {} is not settled", fields.origin(),
         family.model_type);
  router.renormalise_epsilon = family.renormalise_epsilon;
  const double scaling = fields.number(family.scaling);
  router.scaling_factor = static_cast<float>(scaling);
  if (!std::isfinite(router.scaling_factor) || router.scaling_factor <= 0)
    fail(ErrorCode::invalid_data, "{}: scaling factor {} is not above 0 and finite", fields.origin(), scaling);
  return router;
}

std::int64_t parse_shared_width(const ModelFamily& family, const ConfigFields& fields) {
  const std::int64_t count = fields.is_null(family.shared_experts.names[0]) ? 0 : fields.integer(family.shared_experts);
  if (count == 0) return 0;
  const std::int64_t width = fields.size(family.shared_width);
  if (count < 0 || count > INT32_MAX / width)
    fail(ErrorCode::invalid_data, "{}: {} shared experts of width {}", fields.origin(), count, width);
  return count * width;
}

MoeTensorNames tensor_names(const ModelFamily& family, const MoeShape& shape) {
  const auto network = [&](const char* name) {
    return ExpertTensorNames{substitute(name, "matrix", family.matrices[0]),
                             substitute(name, "matrix", family.matrices[1]),
                             substitute(name, "matrix", family.matrices[2])};
  };
  MoeTensorNames names;
  names.router = family.router_name;
  names.expert = network(family.expert_name);
  if (shape.selection_bias) names.selection_bias = family.selection_bias_name;
  if (shape.shared_intermediate > 0) names.shared = network(family.shared_name);
  if (shape.shared_gate) names.shared_gate = family.shared_gate_name;
  return names;
}

SparseLayers parse_sparse_layers(const ModelFamily& family, const ConfigFields& fields) {
  SparseLayers sparse;
  sparse.first = fields.integer(family.first_sparse_layer);
  sparse.step = fields.size(family.sparse_step);
  sparse.offset = family.sparse_offset;
  if (family.dense_layers_field != nullptr) sparse.dense = fields.integers(family.dense_layers_field);
  std::sort(sparse.dense.begin(), sparse.dense.end());
  if (sparse.first < 0)
    fail(ErrorCode::invalid_data, "{}: \"{}\" is {}", fields.origin(), family.first_sparse_layer.names[0],
         sparse.first);
  return sparse;
}

std::string parse_quantization(const nlohmann::json& config, const ConfigFields& fields) {
  const nlohmann::json* quantization = find_member(config, "quantization_config");
  if (quantization == nullptr) return {};
  if (!quantization->is_object())
    fail(ErrorCode::invalid_data, "{}: \"quantization_config\" is not an object", fields.origin());
  return ConfigFields(*quantization, fields.origin() + ": quantization_config").text({{"quant_method"}});
}

ModelConfig parse_config(const nlohmann::json& config, const std::string& origin) {
  const ConfigFields fields(config, origin);
  const ModelFamily& family = family_of(fields);
  const std::string selection = fields.text(family.selection);
  const SelectionMethod* method = find_selection_method(selection);
  if (method == nullptr) fail(ErrorCode::unsupported, "{}: unknown selection method \"{}\"", origin, selection);

  ModelConfig result;
  result.family = family.model_type;
  const std::int64_t layers = fields.size({{"num_hidden_layers"}});
  if (layers > max_layers) fail(ErrorCode::invalid_data, "{}: {} layers, more than {}", origin, layers, max_layers);
  result.num_layers = static_cast<int>(layers);
  if (const std::string dtype = fields.text({{"torch_dtype", "dtype"}, ""}); !dtype.empty())
    result.dtype = look_up(dtypes, dtype, "dtype", fields);
  result.sparse = parse_sparse_layers(family, fields);
  result.moe.family = family.model_type;
  result.moe.quantization_method = parse_quantization(config, fields);

  MoeShape& shape = result.moe.shape;
  shape.hidden = fields.size({{"hidden_size"}});
  shape.intermediate = fields.size(family.intermediate);
  shape.experts = static_cast<std::int32_t>(fields.size(family.experts));
  shape.router = parse_router(family, *method, shape.experts, fields);
  shape.selection_bias = method->bias;
  shape.shared_intermediate = parse_shared_width(family, fields);
  shape.shared_gate = family.shared_gate && shape.shared_intermediate > 0;
  shape.activation.function = look_up(activations, fields.text({{"hidden_act"}, "silu"}), "activation", fields);
  result.moe.names = tensor_names(family, shape);
  return result;
}

}  // namespace

bool SparseLayers::contains(std::int64_t layer) const {
  return layer >= first && (layer + offset) % step == 0 && !std::binary_search(dense.begin(), dense.end(), layer);
}

ModelConfig ModelConfig::parse(const std::string& json, const std::string& origin) {
  return parse_config(parse_json(json, origin), origin);
}

ModelConfig ModelConfig::load(const std::string& path) { return parse_config(read_json_file(path), path); }

bool ModelConfig::has_experts(int layer) const { return layer >= 0 && layer < num_layers && sparse.contains(layer); }

int ModelConfig::first_moe_layer() const {
  for (int layer = 0; layer < num_layers; ++layer)
    if (sparse.contains(layer)) return layer;
  fail(ErrorCode::invalid_data, "none of the {} layers of this {} model has experts", num_layers, family);
}

MoeLayerConfig ModelConfig::layer(int layer) const {
  require(layer >= 0 && layer < num_layers, "layer {} of a model with {} layers", layer, num_layers);
  require(sparse.contains(layer), "layer {} is dense; the first layer with experts is {}", layer, first_moe_layer());
  MoeLayerConfig result = moe;
  result.layer = layer;
  MoeTensorNames& names = result.names;
  for (std::string* name :
       {&names.router, &names.selection_bias, &names.expert.gate, &names.expert.up, &names.expert.down,
        &names.shared.gate, &names.shared.up, &names.shared.down, &names.shared_gate})
    *name = substitute(*name, "layer", std::to_string(layer));
  return result;
}

}  // namespace moecl
