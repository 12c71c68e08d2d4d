#include <moecl/fused_shared.hpp>
#include <moecl/named_weights.hpp>

#include <algorithm>
#include <charconv>

#include "host/checkpoint/layer_tensors.hpp"
#include "host/checkpoint/name_template.hpp"
#include "host/checkpoint/network_tensors.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::string_view expert_token = "{expert}";

/// Whether the tensor belongs to the module of `name`: its name is the module's, alone or followed by one of `joints`.
bool is_of(std::string_view tensor, const std::string& name, std::string_view joints) {
  if (name.empty()) return false;
  const std::string module = module_of(name);
  if (tensor.substr(0, module.size()) != module) return tensor == name;
  return tensor.size() == module.size() || joints.find(tensor[module.size()]) != joints.npos;
}

/// The number that `tensor` has in the place of "{expert}" in `name`; -1: it does not have such a name.
std::int64_t expert_in(std::string_view tensor, std::string_view name) {
  const std::size_t at = name.find(expert_token);
  if (at == name.npos || tensor.substr(0, at) != name.substr(0, at)) return -1;
  std::int64_t expert = -1;
  const char *const begin = tensor.data() + at, *const end = tensor.data() + tensor.size();
  const auto [rest, failed] = std::from_chars(begin, end, expert);
  const std::string_view joint = name.substr(at + expert_token.size(), 1);
  const std::string_view found(rest, rest == end ? 0 : 1);
  return failed == std::errc() && expert >= 0 && found == joint ? expert : -1;
}

/// The tensors that some matrices need: how many are present, and the names of the missing ones.
struct Needs {
  std::size_t present = 0;
  std::vector<std::string> missing;

  void add(const TensorSource& source, const std::vector<std::string>& names) {
    const bool there = std::any_of(names.begin(), names.end(), [&](const auto& name) { return source.has(name); });
    there ? void(++present) : missing.push_back(names.front());
  }
  void add(const TensorSource& source, const LayerTensors& find, const ExpertTensorNames& names,
           const NetworkParts& parts) {
    for (const TensorPart* part : {&parts.gate, &parts.up, &parts.down})
      if (!part->name.empty() && (part != &parts.up || parts.up.name != parts.gate.name))
        for (const auto& any_of : find.needed(*part)) add(source, any_of);
    for (const std::string* bias : {&names.gate_bias, &names.up_bias, &names.down_bias})
      if (!bias->empty() && (bias != &names.up_bias || names.up_bias != names.gate_bias))
        add(source, {parts.gate.bias(*bias).name});
  }
};

/// One expert in one of its forms.
struct Form {
  ExpertTensorNames names;
  NetworkParts parts;

  Form(const MoeLayerConfig& config, const ExpertTensorNames& form, std::int64_t expert)
      : names(form),
        parts(form, config.shape.expert_width(), config.shape.intermediate, config.shape.routed_experts(), expert) {
    for (std::string* bias : {&names.gate_bias, &names.up_bias, &names.down_bias})
      *bias = substitute(*bias, "expert", std::to_string(expert));
  }
  Needs needs(const TensorSource& source, const LayerTensors& find) const {
    Needs all;
    all.add(source, find, names, parts);
    return all;
  }
};

NetworkParts shared_parts(const MoeLayerConfig& config) {
  const MoeShape& shape = config.shape;
  const std::int64_t width = shape.shared_intermediate > 0 ? shape.shared_intermediate
                                                           : shape.router.fused_shared_experts * shape.intermediate;
  return {config.names.shared, shape.hidden, width, 0, 0};
}

Needs shared_needs(const TensorSource& source, const MoeLayerConfig& config) {
  Needs needs;
  needs.add(source, LayerTensors(source, config), config.names.shared, shared_parts(config));
  return needs;
}

ExpertMatrices find_shared(const LayerTensors& find, const MoeLayerConfig& config) {
  return find_network(find, config.names.shared, shared_parts(config));
}

bool is_of_any(std::string_view tensor, std::initializer_list<const std::string*> names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string* name) { return is_of(tensor, *name, "."); });
}

/// The table of expert ids, [V, K] of integers. The layer checks the ids.
HostMatrix find_table(const TensorSource& source, const MoeLayerConfig& config) {
  const HostTensor table = source.tensor(config.names.expert_table);
  if (table.shape.size() != 2)
    fail(ErrorCode::invalid_data, "{}: {}, expected [{}, {}]", source.origin(), table.describe(),
         config.shape.vocabulary, config.shape.router.top_k);
  return {table.data, table.dtype, table.shape[0], table.shape[1]};
}

}  // namespace

ExpertMatrices find_network(const LayerTensors& find, const ExpertTensorNames& names, const NetworkParts& parts) {
  ExpertMatrices network;
  if (!names.gate.empty()) network.gate = find.matrix(parts.gate);
  network.up = find.matrix(parts.up);
  network.down = find.matrix(parts.down);
  const auto bias = [&](const TensorPart& part, const std::string& name, HostMatrix& to) {
    if (!name.empty()) to = find.vector(part.bias(name));
  };
  bias(parts.gate, names.gate_bias, network.gate_bias);
  bias(parts.up, names.up_bias, network.up_bias);
  bias(parts.down, names.down_bias, network.down_bias);
  // Gate and up share an input; the larger of their scales covers it. Source: vLLM, w13_input_scale of fp8 and nvfp4
  network.gate_up_input_scale = find.input_scale(parts.up).value_or(0);
  if (!names.gate.empty())
    network.gate_up_input_scale = std::max(network.gate_up_input_scale, find.input_scale(parts.gate).value_or(0));
  network.down_input_scale = find.input_scale(parts.down).value_or(0);
  return network;
}

MoeWeights find_common_weights(const TensorSource& source, const MoeLayerConfig& config) {
  const LayerTensors find(source, config);
  const MoeShape& shape = config.shape;
  const MoeTensorNames& names = config.names;
  MoeWeights weights;
  if (!names.router.empty())
    weights.router = find.plain(TensorPart::whole(names.router, shape.choices(), shape.hidden));
  const TensorPart of_experts = TensorPart::whole("", shape.choices(), 1);
  if (shape.router_bias) weights.router_bias = find.vector(of_experts.bias(names.router_bias));
  if (shape.selection_bias) weights.selection_bias = find.vector(of_experts.bias(names.selection_bias));
  if (shape.shared_intermediate > 0) weights.shared = find_shared(find, config);
  if (shape.shared_gate) weights.shared_gate = find.plain(TensorPart::whole(names.shared_gate, 1, shape.hidden));
  if (shape.vocabulary > 0) weights.expert_table = find_table(source, config);
  const auto vectors = [&](const std::string& name) {
    return find.plain(TensorPart::whole(name, shape.const_experts, shape.expert_width()));
  };
  if (shape.const_experts == 0) return weights;
  weights.const_alpha_1 = vectors(names.const_alpha_1);
  weights.const_alpha_2 = vectors(names.const_alpha_2);
  weights.const_v = vectors(names.const_v);
  return weights;
}

std::vector<std::string> missing_common_tensors(const TensorSource& source, const MoeLayerConfig& config) {
  const MoeShape& shape = config.shape;
  const MoeTensorNames& names = config.names;
  Needs needs;
  const auto need = [&](bool wanted, const std::string& name) {
    if (wanted) needs.add(source, {name});
  };
  need(!names.router.empty(), names.router);
  need(shape.router_bias, names.router_bias);
  need(shape.selection_bias, names.selection_bias);
  need(shape.vocabulary > 0, names.expert_table);
  for (const std::string* name : {&names.const_alpha_1, &names.const_alpha_2, &names.const_v})
    need(shape.const_experts > 0, *name);
  need(shape.shared_gate, names.shared_gate);
  if (shape.shared_intermediate == 0) return needs.missing;
  const std::vector<std::string> of_shared = shared_needs(source, config).missing;
  needs.missing.insert(needs.missing.end(), of_shared.begin(), of_shared.end());
  return needs.missing;
}

std::vector<std::string> missing_expert_tensors(const TensorSource& source, const MoeLayerConfig& config,
                                                std::int64_t expert) {
  if (expert >= config.shape.routed_experts()) return shared_needs(source, config).missing;
  const LayerTensors find(source, config);
  Needs most;
  for (const ExpertTensorNames& form : config.names.experts) {
    Needs needs = Form(config, form, expert).needs(source, find);
    if (needs.missing.empty()) return {};
    if (most.missing.empty() || needs.present > most.present) most = std::move(needs);
  }
  return most.missing;
}

ExpertMatrices find_expert(const TensorSource& source, const MoeLayerConfig& config, std::int64_t expert) {
  const LayerTensors find(source, config);
  require(expert >= 0 && expert < config.shape.experts, "expert {} of {}", expert, config.shape.experts);
  if (const std::int64_t index = expert - config.shape.routed_experts(); index >= 0)
    return fused_shared_expert(config.shape, find_shared(find, config), index);
  // Where forms share names, the tensors' shapes decide.
  const ExpertTensorNames* whole = &config.names.experts.front();
  for (const ExpertTensorNames& names : config.names.experts) {
    const Form form(config, names, expert);
    if (!form.needs(source, find).missing.empty()) continue;
    whole = &names;
    if (find.fits(form.parts.up) && find.fits(form.parts.down)) break;
  }
  const Form form(config, *whole, expert);
  return find_network(find, form.names, form.parts);
}

TensorOwner owner_of(const MoeLayerConfig& config, std::string_view tensor) {
  const MoeTensorNames& names = config.names;
  for (const ExpertTensorNames& form : names.experts)
    for (const std::string* name :
         {&form.gate, &form.up, &form.down, &form.gate_bias, &form.up_bias, &form.down_bias}) {
      if (const std::int64_t expert = expert_in(tensor, *name); expert >= 0) return {TensorOwner::Kind::expert, expert};
      if (form.stacked && is_of(tensor, *name, "._")) return {TensorOwner::Kind::every_expert, 0};
    }
  const ExpertTensorNames& shared = names.shared;
  if (is_of_any(tensor,
                {&shared.gate, &shared.up, &shared.down, &shared.gate_bias, &shared.up_bias, &shared.down_bias}))
    return {config.shape.router.fused_shared_experts > 0 ? TensorOwner::Kind::fused_shared : TensorOwner::Kind::common};
  if (is_of_any(tensor, {&names.router, &names.router_bias, &names.selection_bias, &names.shared_gate,
                         &names.expert_table, &names.const_alpha_1, &names.const_alpha_2, &names.const_v}))
    return {TensorOwner::Kind::common};
  return {};
}

MoeLayerConfig named_layer(const MoeShape& shape, const QuantizedModules& quantized, bool alternating,
                           bool transposed) {
  MoeLayerConfig config;
  config.family = "engine";
  config.shape = shape;
  MoeTensorNames& names = config.names;
  names.router = "router.weight";
  if (shape.router_bias) names.router_bias = "router.bias";
  if (shape.selection_bias) names.selection_bias = "router.e_score_correction_bias";
  if (shape.vocabulary > 0) names.expert_table = "router.expert_table";
  if (shape.const_experts > 0) {
    names.const_alpha_1 = "const_experts.alpha_1";
    names.const_alpha_2 = "const_experts.alpha_2";
    names.const_v = "const_experts.v";
  }
  const auto network = [&](const std::string& prefix, bool together, bool biased) {
    ExpertTensorNames of;
    const std::string up = prefix + (together ? "gate_up" : "w3"), gate = together ? up : prefix + "w1",
                      down = prefix + "w2";
    of.up = up + ".weight";
    of.down = down + ".weight";
    if (shape.activation.gated) of.gate = gate + ".weight";
    if (!biased) return of;
    of.up_bias = up + ".bias";
    of.down_bias = down + ".bias";
    if (shape.activation.gated) of.gate_bias = gate + ".bias";
    return of;
  };
  for (const bool stacked : {false, true})
    for (const bool together : {false, true}) {
      if (together && !shape.activation.gated) continue;
      ExpertTensorNames form = network(stacked ? "experts." : "experts.{expert}.", together, shape.expert_bias);
      form.stacked = stacked;
      form.transposed = transposed;
      form.alternating = together && alternating;
      names.experts.push_back(form);
    }
  if (shape.shared_intermediate > 0) names.shared = network("shared.", false, shape.shared_bias);
  if (shape.shared_gate) names.shared_gate = "shared.gate.weight";
  if (!quantized.scheme.quantized()) return config;
  config.quantization.method = "engine";
  config.quantization.groups = {quantized};
  // The shared experts are quantized like the routed ones, or plain: the stored tensors decide.
  config.quantization.ignored.emplace_back("shared.w", "engine");
  return config;
}

}  // namespace moecl
