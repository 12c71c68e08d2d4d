#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json unknown_model = {{"model_type", "unheard_of"}, {"hidden_size", 96}, {"num_hidden_layers", 1}};

/// A spec with every field, for the layers of the gpt-oss golden.
json gpt_oss() {
  return json::parse(R"({
    "hidden": 96, "intermediate": 64, "experts": 8, "layers": 1,
    "router": {"top_k": 4, "score": "softmax", "order": "after_top_k", "groups": 1, "kept_groups": 1,
               "group_score": "max", "renormalise": false, "renormalise_epsilon": 0, "renormalise_minimum": 0,
               "scaling_factor": 1, "weight_on_input": false, "mixer_jitter": 0},
    "activation": {"function": "swigluoai", "alpha": 1.702, "limit": 7, "bias": 1},
    "shared_intermediate": 0, "sparse_layers": {"first": 0, "last": 0, "step": 1, "phase": 0, "dense": []},
    "tensors": {"router": "model.layers.{layer}.mlp.router.weight", "router_bias": "model.layers.{layer}.mlp.router.bias",
                "selection_bias": null, "shared_gate": null,
                "experts": {"gate_up": "model.layers.{layer}.mlp.experts.gate_up_proj",
                            "down": "model.layers.{layer}.mlp.experts.down_proj",
                            "gate_up_bias": "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
                            "down_bias": "model.layers.{layer}.mlp.experts.down_proj_bias",
                            "transposed": true, "alternating": true}}})");
}

ModelConfig parse(const json& config, const json& spec) {
  return ModelConfig::parse(config.dump(), "config.json", spec.dump());
}

TEST(RouterSpecFileTest, DescribesAFamilyThatNobodyKnows) {
  const std::string golden = data_path("goldens/gpt-oss-bf16form-e8k4");
  const TempDir dir;
  write_text(dir.file("config.json"), unknown_model.dump());
  write_text(dir.file("spec.json"), gpt_oss().dump());
  std::filesystem::copy_file(golden + "/model.safetensors", dir.file("model.safetensors"));
  EXPECT_EQ(error_of([&] { Checkpoint::open(dir.path()); }).code(), ErrorCode::unsupported);

  const Checkpoint described = Checkpoint::open(dir.path(), dir.file("spec.json")), known = Checkpoint::open(golden);
  const MoeLayerConfig ours = described.config().layer(0), theirs = known.config().layer(0);
  EXPECT_EQ(ours.shape.router.order, theirs.shape.router.order);
  EXPECT_EQ(ours.shape.router.top_k, theirs.shape.router.top_k);
  EXPECT_EQ(ours.shape.activation.function, theirs.shape.activation.function);
  const MoeWeights a = find_layer_weights(described, ours), b = find_layer_weights(known, theirs);
  const auto expect_same = [](const HostMatrix& x, const HostMatrix& y) {
    EXPECT_EQ(x.rows, y.rows);
    EXPECT_EQ(x.columns, y.columns);
    EXPECT_EQ(x.row_stride, y.row_stride);
    EXPECT_EQ(x.column_stride, y.column_stride);
    EXPECT_EQ(std::memcmp(x.in_memory().data.memory(), y.in_memory().data.memory(), 2), 0);
  };
  ASSERT_EQ(a.experts.size(), b.experts.size());
  expect_same(a.router_bias, b.router_bias);
  for (std::size_t e = 0; e < a.experts.size(); ++e) {
    expect_same(a.experts[e].up.plain, b.experts[e].up.plain);
    expect_same(a.experts[e].down.plain, b.experts[e].down.plain);
    expect_same(a.experts[e].gate_bias, b.experts[e].gate_bias);
  }
}

TEST(RouterSpecFileTest, ReplacesWhatItNames) {
  const json config = json::parse(read_text(data_path("goldens/deepseek-v3-e32k8-g8/config.json")));
  const MoeLayerConfig base = ModelConfig::parse(config.dump(), "config.json").layer(0);
  const MoeLayerConfig changed = parse(config, {{"router", {{"scaling_factor", 1.5}, {"renormalise", false}}},
                                                {"tensors", {{"selection_bias", nullptr}}}})
                                     .layer(0);
  EXPECT_EQ(changed.shape.router.scaling_factor, 1.5F);
  EXPECT_FALSE(changed.shape.router.renormalise);
  EXPECT_FALSE(changed.shape.selection_bias);
  EXPECT_EQ(changed.shape.router.groups, base.shape.router.groups);
  EXPECT_EQ(changed.names.experts.size(), base.names.experts.size());
  EXPECT_EQ(changed.names.router, base.names.router);
}

TEST(RouterSpecFileTest, TheExampleOfThePageIsMixtral) {
  const std::string page = read_text(data_path("../../host/ROUTER_SPEC.md"));
  const std::size_t begin = page.find("```json") + 7;
  const json spec = json::parse(page.substr(begin, page.find("```", begin) - begin));
  const MoeLayerConfig layer = parse(unknown_model, spec).layer(0);
  EXPECT_EQ(layer.shape.hidden, 96);
  EXPECT_EQ(layer.shape.router.top_k, 2);
  EXPECT_TRUE(layer.shape.router.renormalise);
  EXPECT_EQ(layer.names.experts[0].up, "model.layers.0.block_sparse_moe.experts.{expert}.w3.weight");
  EXPECT_FALSE(layer.names.experts[0].stacked);
}

TEST(RouterSpecFileTest, WhatIsWrongIsSaid) {
  const auto with = [](const char* path, const json& value) {
    json spec = gpt_oss();
    spec[json::json_pointer(path)] = value;
    return spec;
  };
  const struct {
    json spec;
    ErrorCode code;
    const char* message;
  } cases[] = {
      {json::array(), ErrorCode::invalid_data, "expected a JSON object"},
      {with("/rooter", 1), ErrorCode::invalid_data, "unknown member \"rooter\"; there are hidden, intermediate"},
      {with("/router/top", 1), ErrorCode::invalid_data, "router spec: router: unknown member \"top\""},
      {with("/router/top_k", 9), ErrorCode::invalid_data, "9 experts per token of only 8"},
      {with("/router/top_k", "4"), ErrorCode::invalid_data, "top_k is \"4\", not an integer from 1"},
      {with("/router/groups", 3), ErrorCode::invalid_data, "8 experts do not form 3 equal groups"},
      {with("/router/score", "tanh"), ErrorCode::unsupported, "\"tanh\" is not one of softmax"},
      {with("/router/order", "never"), ErrorCode::unsupported, "\"never\" is not one of before_top_k, after_top_k"},
      {with("/router/renormalise", 1), ErrorCode::invalid_data, "renormalise is 1, not true or false"},
      {with("/router/scaling_factor", 0), ErrorCode::invalid_data, "scaling factor 0"},
      {with("/activation/function", "tanh"), ErrorCode::unsupported, "\"tanh\" is not one of silu"},
      {with("/sparse_layers", {0, "1"}), ErrorCode::invalid_data, "holds \"1\", not a layer"},
      {with("/sparse_layers/phase", 1), ErrorCode::invalid_data, "no layer % 1 is 1"},
      {with("/tensors/experts/down", nullptr), ErrorCode::invalid_data, "and \"down\""},
      {with("/tensors/experts/down_bias", nullptr), ErrorCode::invalid_data, "biases of all three matrices or of none"},
      {with("/activation/gated", false), ErrorCode::invalid_data,
       "activation.gated is false, but tensors.experts has a gate"},
      {with("/tensors/router", nullptr), ErrorCode::invalid_data, "no \"tensors.router\""},
      {with("/shared_intermediate", 8), ErrorCode::invalid_data, "no \"tensors.shared\""},
      {json::object(), ErrorCode::invalid_data, "no \"intermediate\", and config.json does not say it either"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.message);
    const Error error = error_of([&] { parse(unknown_model, bad.spec); });
    EXPECT_EQ(error.code(), bad.code);
    EXPECT_THAT(error.what(), HasSubstr(bad.message));
  }
  EXPECT_EQ(error_of([&] { ModelConfig::load(data_path("goldens/mixtral-t0/config.json"), "none.json"); }).code(),
            ErrorCode::io_error);
}

}  // namespace
}  // namespace moecl::test
