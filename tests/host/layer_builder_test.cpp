// A layer whose tensors come one by one: it has the bits of its checkpoint's layer; and the errors on the way.
#include <moecl/fused_shared.hpp>
#include <moecl/layer_builder.hpp>
#include <moecl/named_weights.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "tests/devices.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Every tensor of a golden's checkpoint, in memory of its own.
std::vector<HostTensor> tensors_of(const Model& model) {
  const SafetensorsFile file = SafetensorsFile::open(model.checkpoint.dir() + "/model.safetensors");
  std::vector<HostTensor> tensors;
  for (const std::string& name : file.names()) {
    HostTensor tensor = file.tensor(name).in_memory();
    tensor.data = HostBytes::copy_of(tensor.data.memory(), tensor.size_bytes);
    tensors.push_back(tensor);
  }
  return tensors;
}

Model golden(const std::string& name) {
  Model model(name);
  model.options.activations = model.config.expert_scheme().activations;
  model.options.shared_activations = model.config.shared_scheme().activations;
  return model;
}

class LayerBuilderTest : public OnEveryDevice {
 protected:
  std::vector<double> run(const Model& model, const MoeLayer& layer) const {
    const Buffer workspace(*device().context, layer.workspace_bytes(model.tokens()));
    return forward<MoeLayer::Forward>(device().stream, model, 0, model.tokens(),
                                      [&](MoeLayer::Forward& args) {
                                        args.workspace = workspace.view();
                                        layer.forward(device().stream, args);
                                      })
        .out;
  }
  MoeLayer loaded(const Model& model) const {
    return {device().stream, model.config.shape, find_layer_weights(model.checkpoint, model.config), model.options};
  }
  LayerBuilder builder(const Model& model) const { return {device().stream, model.config, model.options}; }
  MoeLayer built(const Model& model, const std::vector<HostTensor>& tensors) const {
    LayerBuilder builder = this->builder(model);
    for (const HostTensor& tensor : tensors) builder.set(tensor);
    EXPECT_THAT(builder.missing(), IsEmpty());
    return builder.finish();
  }
};
MOECL_ON_EVERY_DEVICE(LayerBuilderTest);

TEST_P(LayerBuilderTest, IsTheLayerOfTheCheckpointInEveryScheme) {
  for (const char* name :
       {"mixtral-e8k2", "qwen2-moe-e16k4", "deepseek-v3-e16k4-negbias", "llama4-e8k1", "granitemoe-e8k2",
        "gpt-oss-bf16form-e8k4", "gpt-oss-mxfp4-e8k4", "mixtral-awq-e4k2", "qwen3-moe-gptq-e8k4", "mixtral-ct-fp8-e4k2",
        "deepseek-v3-fp8block-e8k4", "qwen3-moe-ct-int4-e4k2", "qwen3-moe-ct-int8-e8k2", "qwen3-moe-ct-nvfp4-e8k2"}) {
    SCOPED_TRACE(name);
    const Model model = golden(name);
    const MoeLayer expected = loaded(model), layer = built(model, tensors_of(model));
    EXPECT_EQ(run(model, layer), run(model, expected));
    EXPECT_EQ(layer.report().weight_bytes, expected.report().weight_bytes);
    EXPECT_EQ(layer.report().expert_format, expected.report().expert_format);
    EXPECT_EQ(layer.report().activations, expected.report().activations);
  }
}

TEST_P(LayerBuilderTest, TakesTensorsInAnyOrderAndQuantizesThem) {
  Model model = golden("qwen2-moe-e16k4");
  model.options.quantize = QuantScheme::int8_w8a16().weights;
  const MoeLayer expected = loaded(model);
  std::vector<HostTensor> tensors = tensors_of(model);
  std::mt19937 random(1);
  for (int i = 0; i < 3; ++i) {
    std::shuffle(tensors.begin(), tensors.end(), random);
    const MoeLayer layer = built(model, tensors);
    EXPECT_EQ(run(model, layer), run(model, expected));
    EXPECT_EQ(layer.report().quantization.largest_difference, expected.report().quantization.largest_difference);
  }
}

/// The golden with its shared experts as extra routed ones.
Model fused_golden(const std::string& name, std::int32_t shared_experts) {
  Model model = golden(name);
  model.config = fuse_shared_experts(model.config, shared_experts);
  return model;
}

TEST_P(LayerBuilderTest, SharedExpertsMayBeExtraRoutedOnes) {
  for (const auto& [name, count] : {std::pair{"deepseek-v2-greedy-e64k6", 2}, {"deepseek-v3-fp8block-e8k4", 1}}) {
    SCOPED_TRACE(name);
    const Model plain = golden(name), model = fused_golden(name, count);
    const FusedShared whole =
        fuse_shared_experts(plain.config.shape, find_layer_weights(plain.checkpoint, plain.config), count);
    const MoeLayer expected(device().stream, whole.shape, whole.weights, model.options);
    std::vector<HostTensor> tensors = tensors_of(model);
    EXPECT_EQ(run(model, built(model, tensors)), run(model, expected));
    EXPECT_EQ(run(model, loaded(model)), run(model, expected));
    std::reverse(tensors.begin(), tensors.end());
    LayerBuilder builder = this->builder(model);
    const HostTensor* last = nullptr;
    for (const HostTensor& tensor : tensors)
      if (last == nullptr && tensor.name.find("layers.0.mlp.shared_experts") != tensor.name.npos)
        last = &tensor;
      else
        builder.set(tensor);
    ASSERT_NE(last, nullptr);
    EXPECT_THAT(builder.missing(), ElementsAre(last->name));
    EXPECT_TRUE(builder.set(*last));
    EXPECT_THAT(error_of([&] { builder.set(*last); }).what(), HasSubstr("the shared experts were whole before"));
    EXPECT_EQ(run(model, builder.finish()), run(model, expected));
  }
}

/// Names "model.layers.0.block_sparse_moe.experts.3.w1.qweight" as "experts.3.w1.qweight".
std::vector<HostTensor> named_by_shard(const Model& model) {
  std::vector<HostTensor> tensors;
  const std::string prefix = "model.layers.0.block_sparse_moe.", router = "gate.";
  for (HostTensor tensor : tensors_of(model)) {
    if (tensor.name.rfind(prefix, 0) != 0) continue;
    tensor.name = tensor.name.substr(prefix.size());
    if (tensor.name.rfind(router, 0) == 0) tensor.name = "router." + tensor.name.substr(router.size());
    tensors.push_back(tensor);
  }
  return tensors;
}

TEST_P(LayerBuilderTest, TakesNamesOfShardAndExpert) {
  for (const char* name : {"mixtral-e8k2", "mixtral-awq-e4k2", "mixtral-ct-fp8-e4k2"}) {
    SCOPED_TRACE(name);
    Model model = golden(name);
    const MoeLayer expected = loaded(model);
    model.config =
        named_layer(model.config.shape, model.config.quantization.present() ? model.config.quantization.groups.front()
                                                                            : QuantizedModules());
    EXPECT_EQ(run(model, built(model, named_by_shard(model))), run(model, expected));
  }
}

/// First gate and up of each expert in one tensor, then the tensors of all experts in one.
TEST_P(LayerBuilderTest, TakesGateAndUpInOneAndAllExpertsInOne) {
  Model model = golden("mixtral-e8k2");
  const MoeShape& shape = model.config.shape;
  const MoeLayer expected = loaded(model);
  const std::vector<double> out = run(model, expected);
  std::map<std::string, HostTensor> named;
  for (const HostTensor& tensor : named_by_shard(model)) named[tensor.name] = tensor;
  const auto joined = [&](const std::string& name, const std::vector<std::string>& parts,
                          std::vector<std::int64_t> extents) {
    std::vector<std::byte> bytes;
    for (const std::string& part : parts) {
      const HostTensor& tensor = named.at(part);
      bytes.insert(bytes.end(), tensor.data.memory(), tensor.data.memory() + tensor.size_bytes);
    }
    return HostTensor{name, named.at(parts.front()).dtype, std::move(extents),
                      HostBytes::copy_of(bytes.data(), bytes.size()), bytes.size()};
  };
  const std::int64_t width = shape.intermediate;
  std::vector<HostTensor> together = {named.at("router.weight")}, stacked = together;
  std::vector<std::string> gate_up, down;
  for (std::int32_t e = 0; e < shape.experts; ++e) {
    const std::string prefix = "experts." + std::to_string(e) + ".";
    together.push_back(named.at(prefix + "w2.weight"));
    together.push_back(
        joined(prefix + "gate_up.weight", {prefix + "w1.weight", prefix + "w3.weight"}, {2 * width, shape.hidden}));
    gate_up.insert(gate_up.end(), {prefix + "w1.weight", prefix + "w3.weight"});
    down.push_back(prefix + "w2.weight");
  }
  stacked.push_back(joined("experts.gate_up.weight", gate_up, {shape.experts, 2 * width, shape.hidden}));
  stacked.push_back(joined("experts.w2.weight", down, {shape.experts, shape.hidden, width}));
  model.config = named_layer(model.config.shape);
  EXPECT_EQ(run(model, built(model, together)), out);
  EXPECT_EQ(run(model, built(model, stacked)), out);
}

TEST_P(LayerBuilderTest, SaysWhatIsMissing) {
  Model model = golden("mixtral-awq-e4k2");
  model.config = named_layer(model.config.shape, model.config.quantization.groups.front());
  LayerBuilder builder = this->builder(model);
  EXPECT_EQ(builder.missing().size(), 1U + 4U * 3U * 3U);
  EXPECT_THAT(error_of([&] { builder.finish(); }).what(),
              HasSubstr("layer builder: 37 tensors are missing: router.weight, experts.0.w1.qweight, "
                        "experts.0.w1.scales, experts.0.w1.qzeros, ..."));
  for (const HostTensor& tensor : named_by_shard(model)) {
    if (tensor.name == "experts.2.w3.qzeros" || tensor.name == "router.weight") continue;
    EXPECT_TRUE(builder.set(tensor)) << tensor.name;
  }
  EXPECT_THAT(builder.missing(), ElementsAre("router.weight", "experts.2.w3.qzeros"));
  EXPECT_THAT(error_of([&] { builder.finish(); }).what(),
              HasSubstr("layer builder: 2 tensors are missing: router.weight, experts.2.w3.qzeros"));
}

TEST_P(LayerBuilderTest, NeedsTheHostsBytesOfAnExpertUntilItIsWhole) {
  const Model model = golden("qwen3-moe-ct-nvfp4-e8k2");
  const MoeLayer expected = loaded(model);
  LayerBuilder builder = this->builder(model);
  std::map<std::int64_t, std::vector<std::vector<std::byte>>> lent;
  std::vector<std::vector<std::byte>> others;
  for (HostTensor tensor : tensors_of(model)) {
    const TensorOwner owner = owner_of(model.config, tensor.name);
    auto& memory = owner.kind == TensorOwner::Kind::expert ? lent[owner.expert] : others;
    memory.emplace_back(tensor.data.memory(), tensor.data.memory() + tensor.size_bytes);
    tensor.data = memory.back().data();
    builder.set(tensor);
    for (auto& [expert, parts] : lent) {
      const std::string of = "experts." + std::to_string(expert) + ".";
      const std::vector<std::string> missing = builder.missing();
      if (std::none_of(missing.begin(), missing.end(), [&](const auto& name) { return name.find(of) != name.npos; }))
        for (auto& part : parts) std::memset(part.data(), 0xFF, part.size());
    }
  }
  EXPECT_EQ(run(model, builder.finish()), run(model, expected));
}

TEST_P(LayerBuilderTest, RefusesWhatDoesNotFit) {
  const Model model = golden("mixtral-ct-fp8-e4k2");
  const MoeLayer expected = loaded(model);
  LayerBuilder builder = this->builder(model);
  std::vector<HostTensor> tensors = tensors_of(model);
  const std::string prefix = "model.layers.0.block_sparse_moe.experts.";
  const auto refusal = [&](const HostTensor& tensor) {
    return std::string(error_of([&] { builder.set(tensor); }).what());
  };
  HostTensor other = tensors.front();
  other.name = "model.layers.1.block_sparse_moe.experts.0.w1.weight";
  EXPECT_FALSE(builder.set(other));
  other.name = prefix + "4.w1.weight";
  EXPECT_THAT(refusal(other), HasSubstr("experts.4.w1.weight: expert 4 of 4"));
  // The last tensor of the first expert has a wrong shape; then the right one comes.
  const auto of_first = std::stable_partition(tensors.begin(), tensors.end(), [&](const HostTensor& tensor) {
    return tensor.name.rfind(prefix + "0.", 0) == 0;
  });
  for (auto tensor = tensors.begin(); tensor + 1 != of_first; ++tensor) builder.set(*tensor);
  HostTensor wrong = *(of_first - 1);
  wrong.shape.front() += 1;
  EXPECT_THAT(refusal(wrong), HasSubstr("but the quantization_config makes it"));
  EXPECT_TRUE(builder.set(*(of_first - 1)));
  EXPECT_THAT(refusal(*(of_first - 1)), HasSubstr("expert 0 was whole before"));
  for (auto tensor = of_first; tensor != tensors.end(); ++tensor) builder.set(*tensor);
  EXPECT_THAT(error_of([&] { builder.finish_rank(); }).what(), HasSubstr("of no rank"));
  EXPECT_EQ(run(model, builder.finish()), run(model, expected));
  EXPECT_THAT(error_of([&] { builder.missing(); }).what(), HasSubstr("finished already"));
}

TEST(LayerBuilderOfRanksTest, EachRankKeepsWhatItNeeds) {
  const Model models[] = {golden("qwen2-moe-e16k4"), golden("deepseek-v3-fp8block-e8k4"),
                          fused_golden("deepseek-v2-greedy-e64k6", 2)};
  for (const Model& model : models)
    for (const ExpertSharding sharding : {ExpertSharding::experts, ExpertSharding::intermediate}) {
      SCOPED_TRACE(model.checkpoint.dir());
      ParallelPlan plan;
      plan.strategy = StrategyKind::all_gather;
      if (sharding == ExpertSharding::experts)
        plan.placement = place_experts({model.config.shape.experts, 2, 1, 2, ExpertPlacement::linear});
      const PlacementPlan placement =
          plan.placement.logical_of.empty() ? place_experts({model.config.shape.experts}) : plan.placement;
      Ranks on(2, Ranks::first_device, {});
      std::vector<Outputs> expected(2), built(2);
      on.group.run([&](Communicator& world) {
        const ExpertRank rank(world, 2, placement.physical(), sharding);
        const auto pass = [&](ParallelLayer layer) {
          Outputs out =
              forward<ParallelLayer::Forward>(world.stream(), model, 0, model.tokens(),
                                              [&](const ParallelLayer::Forward& args) { layer.forward(args); });
          world.stream().finish();
          return out;
        };
        expected[static_cast<std::size_t>(world.rank())] =
            pass({rank, plan, model.config.shape, model.weights(placement, rank.first_expert, rank.local_experts),
                  model.options});
        LayerBuilder builder(rank, plan, model.config, model.options);
        std::int64_t taken = 0, all = 0;
        for (const HostTensor& tensor : tensors_of(model)) {
          const bool of_expert = owner_of(model.config, tensor.name).kind == TensorOwner::Kind::expert;
          all += of_expert ? 1 : 0;
          taken += builder.set(tensor) && of_expert ? 1 : 0;
        }
        EXPECT_EQ(taken < all, sharding == ExpertSharding::experts);
        built[static_cast<std::size_t>(world.rank())] = pass(builder.finish_rank());
      });
      EXPECT_TRUE(built == expected);
    }
}

TEST(LayerBuilderOfRanksTest, ARankMayHaveNoExperts) {
  const Model model = golden("mixtral-awq-e4k2");
  const Outputs alone = of_one_rank(*devices().front(), model);
  const std::int32_t ranks = model.config.shape.experts + 1;
  Ranks on(ranks, Ranks::first_device, {});
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, ranks, model.config.shape.experts);
    EXPECT_EQ(rank.local_experts, world.rank() + 1 < ranks ? 1 : 0);
    ParallelPlan plan;
    plan.strategy = StrategyKind::all_gather;
    LayerBuilder builder(rank, plan, model.config, model.options);
    for (const HostTensor& tensor : tensors_of(model)) builder.set(tensor);
    ParallelLayer layer = builder.finish_rank();
    const Outputs out = forward<ParallelLayer::Forward>(
        world.stream(), model, 0, model.tokens(), [&](const ParallelLayer::Forward& args) { layer.forward(args); });
    world.stream().finish();
    EXPECT_LE(relative_error(out.out, alone.out), 1e-6);
  });
}

}  // namespace
}  // namespace moecl::test
