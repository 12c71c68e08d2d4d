// A layer over several ranks is the layer of one rank.
#include <moecl/checkpoint.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <numeric>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

struct Model {
  Checkpoint checkpoint;
  MoeLayerConfig config;
  MoeLayerOptions options;
  std::vector<double> input;

  explicit Model(const std::string& name, DType dtype = DType::f32)
      : checkpoint(Checkpoint::open(data_path("goldens/" + name))),
        config(checkpoint.config().layer(checkpoint.config().first_moe_layer())) {
    options.dtype = dtype;
    const SafetensorsFile golden = SafetensorsFile::open(data_path("goldens/" + name + "/golden.safetensors"));
    const HostTensor tensor = golden.tensor("hidden_states");
    const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data);
    input = decode(tensor.dtype, {bytes, bytes + tensor.size_bytes});
  }
  std::int64_t hidden() const { return config.shape.hidden; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(input.size()) / hidden(); }
  MoeWeights weights(std::int64_t first, std::int64_t count) const {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    return find_layer_weights(checkpoint, config, ids);
  }
};

struct Outputs {
  std::vector<double> out, routed, logits, ids, weights;
  bool operator==(const Outputs&) const = default;
  void append(const Outputs& more) {
    for (const auto field : {&Outputs::out, &Outputs::routed, &Outputs::logits, &Outputs::ids, &Outputs::weights})
      (this->*field).insert((this->*field).end(), (more.*field).begin(), (more.*field).end());
  }
};

/// Tokens [first, first + tokens) through a layer; `run` gets the arguments that both kinds of layer have.
template <class Forward, class Run>
Outputs forward(StreamView stream, const Model& model, std::int64_t first, std::int64_t tokens, Run run) {
  const MoeShape& shape = model.config.shape;
  const std::int64_t top_k = shape.router.top_k;
  const DeviceTensor x(
      stream, model.options.dtype, {tokens, shape.hidden},
      {model.input.begin() + first * shape.hidden, model.input.begin() + (first + tokens) * shape.hidden});
  const DeviceTensor out(stream, DType::f32, {tokens, shape.hidden}),
      routed(stream, DType::f32, {tokens, shape.hidden}), logits(stream, DType::f32, {tokens, shape.experts}),
      ids(stream, DType::i32, {tokens, top_k}), weights(stream, DType::f32, {tokens, top_k});
  Forward args;
  args.x = x;
  args.out = out;
  args.routed_out = routed;
  args.router_logits = logits;
  args.topk_ids = ids;
  args.topk_weights = weights;
  run(args);
  return {out.values(stream), routed.values(stream), logits.values(stream), ids.values(stream), weights.values(stream)};
}

Outputs of_one_rank(TestDevice& device, const Model& model) {
  const StreamView stream = device.stream;
  const MoeLayer layer(stream, model.config.shape, find_layer_weights(model.checkpoint, model.config), model.options);
  const Buffer workspace(*stream.context, layer.workspace_bytes(model.tokens()));
  return forward<MoeLayer::Forward>(stream, model, 0, model.tokens(), [&](MoeLayer::Forward& args) {
    args.workspace = workspace.view();
    layer.forward(stream, args);
  });
}

/// @param tokens  of each dp rank
Outputs of_ranks(Ranks& on, const Model& model, StrategyKind kind, std::int32_t tp,
                 const std::vector<std::int64_t>& tokens, bool one_platform,
                 ExpertSharding sharding = ExpertSharding::experts) {
  std::vector<Outputs> parts(static_cast<std::size_t>(on.group.size()));
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, tp, model.config.shape.experts, sharding);
    ParallelLayer layer(rank, kind, model.config.shape, model.weights(rank.first_expert, rank.local_experts),
                        model.options);
    const auto mine = tokens.begin() + rank.dp.rank();
    parts[static_cast<std::size_t>(world.rank())] =
        forward<ParallelLayer::Forward>(world.stream(), model, std::accumulate(tokens.begin(), mine, std::int64_t{0}),
                                        *mine, [&](const ParallelLayer::Forward& args) { layer.forward(args); });
    world.stream().finish();  // without tokens there was nothing to wait for; the layer outlives its commands
  });
  Outputs all;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::size_t in_group = r % static_cast<std::size_t>(tp);
    if (one_platform) {
      EXPECT_TRUE(parts[r] == parts[r - in_group]) << "rank " << r << " and the first of its tp group";
    }
    if (in_group == 0) all.append(parts[r]);
  }
  return all;
}

class ParallelLayerTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count, std::chrono::milliseconds deadline = std::chrono::milliseconds(60000)) {
    return {count, GetParam().places, {deadline, GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, ParallelLayerTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(ParallelLayerTest, IsTheLayerOfOneRank) {
  struct Case {
    const char* model;
    DType dtype;
    std::int32_t ranks, tp;
    std::vector<std::int64_t> shares;  ///< tokens of the dp ranks but the last, which has the rest
  };
  const Case cases[] = {{"qwen3-moe-e64k8", DType::f32, 2, 1, {5}},
                        {"qwen2-moe-e16k4", DType::f32, 3, 1, {0, 7}},  // gated shared experts, uneven experts
                        {"deepseek-v3-e32k8-g8", DType::f32, 4, 2, {9}},
                        {"mixtral-skew", DType::f32, 4, 4, {}},
                        {"mixtral-odd257-bf16", DType::bf16, 8, 1, {1, 0, 2, 1, 0, 1, 1}}};
  TestDevice& first = *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0];
  // Where one variant of the products serves few rows and many: DESIGN.md, batch invariance.
  const bool one_variant = first.caps().type == DeviceType::cpu && first.caps().preferred_float_width >= 4;
  const bool same_bits = GetParam().places != Ranks::all_platforms && one_variant;
  for (const Case& c : cases) {
    const Model model(c.model, c.dtype);
    std::vector<std::int64_t> tokens = c.shares;
    tokens.push_back(model.tokens() - std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    ASSERT_GE(tokens.back(), 0) << c.model;
    const Outputs expected = of_one_rank(first, model);
    Ranks on = make(c.ranks);
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", " << c.ranks << " ranks, tp " << c.tp);
      const Outputs got = of_ranks(on, model, kind, c.tp, tokens, GetParam().places != Ranks::all_platforms);
      EXPECT_EQ(got.ids, expected.ids);
      if (same_bits && (kind == StrategyKind::mc2 || kind == StrategyKind::all2all_v)) {
        EXPECT_TRUE(got == expected) << relative_error(got.out, expected.out);
      } else {
        EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
        EXPECT_LE(relative_error(got.routed, expected.routed), 1e-6);
      }
    }
  }
}

TEST_P(ParallelLayerTest, PartsOfEveryExpertAreTheLayerOfOneRank) {
  struct Case {
    const char* model;
    std::int32_t ranks, tp;
    std::vector<std::int64_t> shares;
  };
  const Case cases[] = {{"qwen3-moe-e64k8", 2, 1, {5}},
                        {"qwen2-moe-e16k4", 3, 1, {0, 7}},  // I is not divisible by 3
                        {"deepseek-v3-e32k8-g8", 4, 2, {9}},
                        {"mixtral-skew", 4, 4, {}}};
  TestDevice& first = *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0];
  for (const Case& c : cases) {
    const Model model(c.model);
    std::vector<std::int64_t> tokens = c.shares;
    tokens.push_back(model.tokens() - std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    const Outputs expected = of_one_rank(first, model);
    Ranks on = make(c.ranks);
    for (const StrategyKind kind : {StrategyKind::all_gather, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", " << c.ranks << " ranks, tp " << c.tp);
      const Outputs got = of_ranks(on, model, kind, c.tp, tokens, GetParam().places != Ranks::all_platforms,
                                   ExpertSharding::intermediate);
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
      EXPECT_LE(relative_error(got.routed, expected.routed), 1e-6);
    }
  }
}

/// A layer of 4 ranks in 2 tp groups of which one brings `tokens` of `hidden` when it is rank 2.
std::vector<std::string> failures_of_rank_2(Ranks& on, const Model& model, std::int64_t tokens, std::int64_t hidden) {
  return failures(on, [&](Communicator& world) {
    const ExpertRank rank(world, 2, model.config.shape.experts);
    ParallelLayer layer(rank, StrategyKind::mc2, model.config.shape,
                        model.weights(rank.first_expert, rank.local_experts));
    const bool odd = world.rank() == 2;
    const DeviceTensor x(world.stream(), DType::f32, {odd ? tokens : 3, odd ? hidden : model.hidden()}),
        out(world.stream(), DType::f32, {odd ? tokens : 3, model.hidden()});
    ParallelLayer::Forward args;
    args.x = x;
    args.out = out;
    layer.forward(args);
  });
}

TEST_P(ParallelLayerTest, AnotherHiddenSizeFailsOnEveryRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(4);
  for (const std::string& text : failures_of_rank_2(on, model, 3, model.hidden() + 1))
    EXPECT_THAT(text, testing::HasSubstr("x: expected f32[3, 64], got f32[3, 65]"));
  EXPECT_THAT(on.group.failure(), testing::StartsWith("rank 2: x: expected"));
}

TEST_P(ParallelLayerTest, AnotherTokenCountWithinATpGroupFailsOnEveryRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(4);
  for (const std::string& text : failures_of_rank_2(on, model, 5, model.hidden()))
    EXPECT_THAT(text, testing::HasSubstr("ranks 2 and 3 are one tp group but have 5 and 3 tokens"));
}

TEST_P(ParallelLayerTest, ARankThatDoesNotComeToTheExchangeIsNamed) {
  const Model model("qwen2-moe-e16k4");
  for (const bool throws : {true, false}) {
    Ranks on = make(3, std::chrono::milliseconds(throws ? 60000 : 300));
    std::vector<std::unique_ptr<ParallelLayer>> layers(3);  // made before, so that the deadline is the exchange's
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      layers[static_cast<std::size_t>(world.rank())] = std::make_unique<ParallelLayer>(
          rank, StrategyKind::all2all_v, model.config.shape, model.weights(rank.first_expert, rank.local_experts));
    });
    const auto texts = failures(on, [&](Communicator& world) {
      if (world.rank() == 1) {
        if (throws) throw std::runtime_error("the disk is full");
        while (on.group.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        throw std::runtime_error("late");
      }
      const DeviceTensor x(world.stream(), DType::f32, {3, model.hidden()}),
          out(world.stream(), DType::f32, {3, model.hidden()});
      ParallelLayer::Forward args;
      args.x = x;
      args.out = out;
      layers[static_cast<std::size_t>(world.rank())]->forward(args);
    });
    for (const std::size_t rank : {0U, 2U})
      EXPECT_THAT(texts[rank], testing::HasSubstr(throws ? "rank 1: the disk is full" : "waited 300 ms for rank 1"));
  }
}

TEST_P(ParallelLayerTest, RefusesWhatDoesNotFitTheRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  on.group.run([&](Communicator& world) {
    const MoeShape& shape = model.config.shape;
    const ExpertRank rank(world, 1, shape.experts), other(world, 1, shape.experts - 1);
    const auto refused = [&](const ExpertRank& of, std::int64_t experts, const MoeLayerOptions& options = {}) {
      return std::string(
          error_of([&] { ParallelLayer(of, StrategyKind::mc2, shape, model.weights(0, experts), options); }).what());
    };
    EXPECT_THAT(refused(rank, 7), testing::HasSubstr("8, the weights have 7"));
    EXPECT_THAT(refused(other, other.local_experts),
                testing::HasSubstr("the rank shards 15 experts, the shape has 16"));
    MoeLayerOptions batched;
    batched.layout = ExpertLayout::batched;
    const ExpertRank parts(world, 1, shape.experts, ExpertSharding::intermediate);
    EXPECT_THAT(refused(parts, shape.experts), testing::HasSubstr("strategy mc2: sends tokens to whole experts"));
    MoeShape narrow = shape;
    narrow.intermediate = 1;
    EXPECT_THAT(std::string(error_of([&] {
                              ParallelLayer(parts, StrategyKind::all_gather, narrow, model.weights(0, shape.experts));
                            }).what()),
                testing::HasSubstr("an intermediate size of 1 is too small for 2 ranks"));
    EXPECT_THAT(refused(rank, 8, batched), testing::HasSubstr("the batched layout is for one rank"));
  });
}

}  // namespace
}  // namespace moecl::test
