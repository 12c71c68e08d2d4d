#include <moecl/model_config.hpp>

#include <algorithm>

#include "host/checkpoint/family_config.hpp"
#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/name_template.hpp"
#include "host/checkpoint/router_spec_file.hpp"
#include "runtime/check.hpp"

namespace moecl {

bool SparseLayers::contains(std::int64_t layer) const {
  if (only) return std::binary_search(only->begin(), only->end(), layer);
  return layer >= first && layer <= last && layer % step == phase &&
         !std::binary_search(dense.begin(), dense.end(), layer);
}

namespace {

ModelConfig read_with_spec(const nlohmann::json& config, const std::string& origin, const nlohmann::json& spec,
                           const std::string& spec_origin) {
  const ModelConfig read =
      is_known_family(config, origin) ? read_family_config(config, origin) : read_common_config(config, origin);
  ModelConfig result = apply_router_spec(spec, spec_origin, read);
  for (auto& [layer, moe] : result.varied) {
    ModelConfig one = read;
    one.moe = moe;
    moe = apply_router_spec(spec, spec_origin, one).moe;
  }
  return result;
}

}  // namespace

ModelConfig ModelConfig::parse(const std::string& json, const std::string& origin, const std::string& router_spec) {
  const JsonDocument config = parse_json(json, origin);
  if (router_spec.empty()) return read_family_config(config, origin);
  return read_with_spec(config, origin, parse_json(router_spec, "router spec"), "router spec");
}

ModelConfig ModelConfig::load(const std::string& path, const std::string& router_spec_path) {
  const JsonDocument config = read_json_file(path);
  if (router_spec_path.empty()) return read_family_config(config, path);
  return read_with_spec(config, path, read_json_file(router_spec_path), router_spec_path);
}

bool ModelConfig::has_experts(int layer) const { return layer >= 0 && layer < num_layers && sparse.contains(layer); }

int ModelConfig::first_moe_layer() const {
  for (int layer = 0; layer < num_layers; ++layer)
    if (sparse.contains(layer)) return layer;
  fail(ErrorCode::invalid_data, "none of the {} layers of this {} model has experts", num_layers, family);
}

namespace {

QuantScheme scheme_of(const QuantizationConfig& quantization, const ExpertTensorNames& names) {
  const QuantizedModules* modules = quantization.find(module_of(substitute(names.down, "expert", "0")));
  return modules == nullptr ? QuantScheme::none() : modules->scheme;
}

}  // namespace

QuantScheme MoeLayerConfig::expert_scheme() const {
  return names.experts.empty() ? QuantScheme::none() : scheme_of(quantization, names.experts.front());
}
QuantScheme MoeLayerConfig::shared_scheme() const {
  return shape.shared_intermediate == 0 ? QuantScheme::none() : scheme_of(quantization, names.shared);
}

MoeLayerConfig ModelConfig::layer(int layer) const {
  require(layer >= 0 && layer < num_layers, "layer {} of a model with {} layers", layer, num_layers);
  require(sparse.contains(layer), "layer {} is dense; the first layer with experts is {}", layer, first_moe_layer());
  const auto other = varied.find(layer);
  MoeLayerConfig result = other == varied.end() ? moe : other->second;
  result.layer = layer;
  result.dtype = dtype;
  for_each_name(result.names, [&](std::string& name) { name = substitute(name, "layer", std::to_string(layer)); });
  return result;
}

}  // namespace moecl
