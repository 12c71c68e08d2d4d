#include "host/checkpoint/router_spec_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "host/checkpoint/family_config.hpp"
#include "host/checkpoint/json_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// An object of the spec; reading a member that is absent leaves the value as it is.
class SpecObject {
 public:
  /// Errors: invalid_data  not an object, or it has members other than these
  SpecObject(const nlohmann::json& object, std::string origin, std::initializer_list<const char*> members)
      : object_(object), origin_(std::move(origin)) {
    if (!object.is_object()) fail(ErrorCode::invalid_data, "{}: expected an object, got {}", origin_, object.dump());
    for (const auto& [key, value] : object.items())
      if (std::find(members.begin(), members.end(), key) == members.end())
        fail(ErrorCode::invalid_data, "{}: unknown member \"{}\"; there are {}", origin_, key,
             fmt::join(members, ", "));
  }
  const std::string& origin() const { return origin_; }
  const nlohmann::json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  std::string path(const char* key) const { return origin_ + ": " + key; }

  void read(const char* key, bool& to) const {
    read(key, to, "true or false", [](const nlohmann::json& value) { return value.is_boolean(); });
  }
  void read(const char* key, float& to) const {
    read(key, to, "a number", [](const nlohmann::json& value) { return value.is_number(); });
  }
  /// A tensor's name; null: none.
  void read(const char* key, std::string& to) const {
    if (const nlohmann::json* name = find(key); name != nullptr && name->is_null()) return to.clear();
    read(key, to, "a string", [](const nlohmann::json& value) { return value.is_string(); });
  }
  /// An integer in [least, 2^31).
  template <class Integer>
  void read_integer(const char* key, Integer& to, std::int64_t least) const {
    read(key, to, fmt::format("an integer from {} to 2^31 - 1", least), [&](const nlohmann::json& value) {
      return value.is_number_integer() && value >= least && value <= INT32_MAX;
    });
  }
  /// Reads a text; the value is what `named` returns for it.
  template <class Value, class Named>
  void read_named(const char* key, Value& to, Named named) const {
    std::string name;
    read(key, name);
    if (!name.empty()) to = named(name, path(key));
  }

 private:
  template <class Value, class Accepts>
  void read(const char* key, Value& to, const std::string& type, Accepts accepts) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return;
    if (!accepts(*value)) fail(ErrorCode::invalid_data, "{} is {}, not {}", path(key), value->dump(), type);
    to = value->get<Value>();
  }

  const nlohmann::json& object_;
  std::string origin_;
};

template <class Value>
Value one_of(const std::string& name, const std::string& origin,
             std::initializer_list<std::pair<const char*, Value>> values) {
  std::vector<const char*> known;
  for (const auto& [text, value] : values) {
    if (name == text) return value;
    known.push_back(text);
  }
  fail(ErrorCode::unsupported, "{}: \"{}\" is not one of {}", origin, name, fmt::join(known, ", "));
}

void read_router(const SpecObject& spec, RouterSpec& router) {
  spec.read_integer("top_k", router.top_k, 1);
  spec.read_named("score", router.score, score_function);
  spec.read_named("order", router.order, [](const std::string& name, const std::string& origin) {
    return one_of<ScoreOrder>(name, origin,
                              {{"before_top_k", ScoreOrder::before_top_k}, {"after_top_k", ScoreOrder::after_top_k}});
  });
  spec.read_integer("groups", router.groups, 1);
  spec.read_integer("kept_groups", router.kept_groups, 1);
  spec.read_named("group_score", router.group_score, [](const std::string& name, const std::string& origin) {
    return one_of<GroupScore>(name, origin, {{"max", GroupScore::max}, {"sum_of_top_2", GroupScore::sum_of_top_2}});
  });
  spec.read("renormalise", router.renormalise);
  spec.read("renormalise_epsilon", router.renormalise_epsilon);
  spec.read("renormalise_minimum", router.renormalise_minimum);
  spec.read("scaling_factor", router.scaling_factor);
  spec.read("weight_on_input", router.weight_on_input);
  spec.read("mixer_jitter", router.mixer_jitter);
}

void read_activation(const SpecObject& spec, Activation& activation) {
  spec.read_named("function", activation.function, activation_function);
  spec.read("alpha", activation.alpha);
  spec.read("limit", activation.limit);
  spec.read("bias", activation.bias);
  spec.read("gated", activation.gated);
}

std::vector<std::int64_t> read_layers(const nlohmann::json& list, const std::string& origin) {
  std::vector<std::int64_t> layers;
  if (!list.is_array()) fail(ErrorCode::invalid_data, "{} is {}, not a list of layers", origin, list.dump());
  for (const nlohmann::json& layer : list) {
    if (!layer.is_number_integer() || layer < 0 || layer > INT32_MAX)
      fail(ErrorCode::invalid_data, "{} holds {}, not a layer", origin, layer.dump());
    layers.push_back(layer.get<std::int64_t>());
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

SparseLayers read_sparse_layers(const nlohmann::json& spec, const std::string& origin) {
  SparseLayers sparse;
  if (spec.is_array()) {
    sparse.only = read_layers(spec, origin);
    return sparse;
  }
  const SpecObject object(spec, origin, {"first", "last", "step", "phase", "dense"});
  object.read_integer("first", sparse.first, 0);
  object.read_integer("last", sparse.last, 0);
  object.read_integer("step", sparse.step, 1);
  object.read_integer("phase", sparse.phase, 0);
  if (sparse.phase >= sparse.step)
    fail(ErrorCode::invalid_data, "{}: no layer % {} is {}", origin, sparse.step, sparse.phase);
  if (const nlohmann::json* dense = object.find("dense")) sparse.dense = read_layers(*dense, object.path("dense"));
  return sparse;
}

ExpertTensorNames read_network(const nlohmann::json& spec, const std::string& origin) {
  const SpecObject object(spec, origin,
                          {"gate", "up", "gate_up", "down", "gate_bias", "up_bias", "gate_up_bias", "down_bias",
                           "transposed", "alternating", "flat"});
  ExpertTensorNames names;
  object.read("gate_up", names.gate);
  names.up = names.gate;
  object.read("gate", names.gate);
  object.read("up", names.up);
  object.read("down", names.down);
  object.read("gate_up_bias", names.gate_bias);
  names.up_bias = names.gate_bias;
  object.read("gate_bias", names.gate_bias);
  object.read("up_bias", names.up_bias);
  object.read("down_bias", names.down_bias);
  object.read("transposed", names.transposed);
  object.read("alternating", names.alternating);
  object.read("flat", names.flat);
  const bool gated = !names.gate.empty(), biased = !names.up_bias.empty();
  if (names.up.empty() || names.down.empty())
    fail(ErrorCode::invalid_data,
         "{}: expected the names \"gate\", \"up\" (or \"gate_up\" for both) and \"down\"; without a gate \"up\" and "
         "\"down\"",
         origin);
  if ((gated && biased == names.gate_bias.empty()) || biased == names.down_bias.empty() ||
      (biased && (names.gate == names.up) != (names.gate_bias == names.up_bias)))
    fail(ErrorCode::invalid_data, "{}: biases of all three matrices or of none, in the form of the matrices", origin);
  if (names.alternating && names.gate != names.up)
    fail(ErrorCode::invalid_data, "{}: rows of \"gate\" and \"up\" alternate in one tensor \"gate_up\" only", origin);
  return names;
}

void read_tensors(const SpecObject& spec, MoeTensorNames& names) {
  spec.read("router", names.router);
  spec.read("router_bias", names.router_bias);
  spec.read("selection_bias", names.selection_bias);
  spec.read("shared_gate", names.shared_gate);
  if (const nlohmann::json* experts = spec.find("experts")) {
    names.experts = {read_network(*experts, spec.path("experts"))};
    ExpertTensorNames& form = names.experts.front();
    form.stacked = form.down.find("{expert}") == std::string::npos;
  }
  if (const nlohmann::json* shared = spec.find("shared")) names.shared = read_network(*shared, spec.path("shared"));
}

}  // namespace

ModelConfig apply_router_spec(const nlohmann::json& spec, const std::string& origin, ModelConfig config) {
  const SpecObject object(spec, origin,
                          {"hidden", "intermediate", "experts", "layers", "router", "activation", "shared_intermediate",
                           "sparse_layers", "tensors"});
  MoeShape& shape = config.moe.shape;
  MoeTensorNames& names = config.moe.names;
  object.read_integer("hidden", shape.hidden, 1);
  object.read_integer("intermediate", shape.intermediate, 1);
  object.read_integer("experts", shape.experts, 1);
  object.read_integer("layers", config.num_layers, 1);
  object.read_integer("shared_intermediate", shape.shared_intermediate, 0);
  if (const nlohmann::json* router = object.find("router"))
    read_router(
        SpecObject(*router, object.path("router"),
                   {"top_k", "score", "order", "groups", "kept_groups", "group_score", "renormalise",
                    "renormalise_epsilon", "renormalise_minimum", "scaling_factor", "weight_on_input", "mixer_jitter"}),
        shape.router);
  if (const nlohmann::json* activation = object.find("activation"))
    read_activation(SpecObject(*activation, object.path("activation"), {"function", "gated", "alpha", "limit", "bias"}),
                    shape.activation);
  if (const nlohmann::json* layers = object.find("sparse_layers"))
    config.sparse = read_sparse_layers(*layers, object.path("sparse_layers"));
  if (const nlohmann::json* tensors = object.find("tensors"))
    read_tensors(SpecObject(*tensors, object.path("tensors"),
                            {"router", "router_bias", "selection_bias", "experts", "shared", "shared_gate"}),
                 names);

  const auto expect = [&](bool given, const char* what) {
    if (!given) fail(ErrorCode::invalid_data, "{}: no \"{}\", and config.json does not say it either", origin, what);
  };
  expect(shape.hidden > 0, "hidden");
  expect(shape.intermediate > 0, "intermediate");
  expect(shape.experts > 0, "experts");
  expect(config.num_layers > 0, "layers");
  expect(!names.router.empty(), "tensors.router");
  expect(!names.experts.empty(), "tensors.experts");
  expect(shape.shared_intermediate == 0 || !names.shared.down.empty(), "tensors.shared");
  const auto expect_gate = [&](const ExpertTensorNames& network, const char* what) {
    if (network.gate.empty() == shape.activation.gated)
      fail(ErrorCode::invalid_data, "{}: activation.gated is {}, but {} has {} gate", origin, shape.activation.gated,
           what, network.gate.empty() ? "no" : "a");
  };
  expect_gate(names.experts.front(), "tensors.experts");
  if (shape.shared_intermediate > 0) expect_gate(names.shared, "tensors.shared");
  shape.router_bias = !names.router_bias.empty();
  shape.selection_bias = !names.selection_bias.empty();
  shape.expert_bias = !names.experts.front().down_bias.empty();
  shape.shared_bias = shape.shared_intermediate > 0 && !names.shared.down_bias.empty();
  shape.shared_gate = shape.shared_intermediate > 0 && !names.shared_gate.empty();
  expect_sound(shape, origin);
  return config;
}

}  // namespace moecl
