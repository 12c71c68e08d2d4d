// Shared experts as extra routed ones: the golden layer with extra columns of ids for them, on one rank and on several.
#include <moecl/fused_shared.hpp>
#include <moecl/layer_builder.h>
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include <map>

#include "tests/host/c_golden.hpp"
#include "tests/host/c_group.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

/// The experts that PyTorch chose for each token, followed by the shared experts with weight 1.
struct WithShared {
  Model model;
  std::int32_t count;
  FusedShared fused;
  std::vector<double> ids, weights, out;

  explicit WithShared(const std::string& name)
      : model(name),
        count(static_cast<std::int32_t>(model.config.shape.shared_intermediate / model.config.shape.intermediate)),
        fused(fuse_shared_experts(model.config.shape, find_layer_weights(model.checkpoint, model.config), count)),
        out(golden_values(name, "output")) {
    const std::vector<double> routed = golden_values(name, "topk_ids"), share = golden_values(name, "topk_weights");
    const auto top_k = static_cast<std::size_t>(model.config.shape.router.top_k);
    for (std::size_t t = 0; t < routed.size() / top_k; ++t) {
      for (std::size_t k = 0; k < top_k; ++k) {
        ids.push_back(routed[t * top_k + k]);
        weights.push_back(share[t * top_k + k]);
      }
      for (std::int32_t i = 0; i < count; ++i) {
        ids.push_back(model.config.shape.experts + i);
        weights.push_back(1);
      }
    }
  }
  /// Expects the same experts and weights: routed experts in any order, then the shared ones.
  void expect_routing(const std::vector<double>& got_ids, const std::vector<double>& got_weights) const {
    const auto top_k = static_cast<std::size_t>(fused.shape.router.top_k),
               chosen = top_k - static_cast<std::size_t>(count);
    ASSERT_EQ(got_ids.size(), ids.size());
    for (std::size_t token = 0; token < ids.size(); token += top_k) {
      std::map<double, double> expected, got;
      for (std::size_t k = token; k < token + top_k; ++k) {
        expected[ids[k]] = weights[k];
        got[got_ids[k]] = got_weights[k];
        if (k >= token + chosen) {
          EXPECT_EQ(got_ids[k], ids[k]);
        }
      }
      for (const auto& [id, weight] : expected) {
        ASSERT_EQ(got.count(id), 1U) << "token " << token / top_k << ", expert " << id;
        EXPECT_NEAR(got[id], weight, 1e-5);
      }
    }
  }
  /// Runs tokens [first, first + tokens). @param given  the caller gives the routing; else the layer's router chooses
  template <class Run>
  std::vector<double> pass(StreamView stream, std::int64_t first, std::int64_t tokens, bool given, Run run) const {
    const std::int64_t hidden = fused.shape.hidden, top_k = fused.shape.router.top_k;
    const auto part = [&](DType dtype, const std::vector<double>& all, std::int64_t columns) {
      return DeviceTensor(stream, dtype, {tokens, columns},
                          {all.begin() + first * columns, all.begin() + (first + tokens) * columns});
    };
    const DeviceTensor x = part(DType::f32, model.input, hidden), chosen = part(DType::i32, ids, top_k),
                       share = part(DType::f32, weights, top_k), sums(stream, DType::f32, {tokens, hidden});
    MoeForward args;
    args.x = x;
    if (given) args.ids = chosen, args.weights = share;
    args.out = sums;
    run(args);
    return sums.values(stream);
  }
};

constexpr const char* goldens[] = {"deepseek-v2-greedy-e64k6", "deepseek-v3-e32k8-g8"};

TEST(FusedSharedTest, IsTheGoldenOnOneRank) {
  for (const char* name : goldens) {
    SCOPED_TRACE(name);
    const WithShared with(name);
    const StreamView stream = devices().front()->stream;
    const MoeLayer layer(stream, with.fused.shape, with.fused.weights);
    const std::int64_t tokens = with.model.tokens(), top_k = with.fused.shape.router.top_k;
    const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
    const DeviceTensor ids(stream, DType::i32, {tokens, top_k}), weights(stream, DType::f32, {tokens, top_k});
    for (const bool given : {true, false}) {
      const std::vector<double> out = with.pass(stream, 0, tokens, given, [&](MoeForward& args) {
        args.workspace = workspace.view();
        if (!given) args.topk_ids = ids, args.topk_weights = weights;
        layer.forward(stream, args);
      });
      EXPECT_LE(relative_error(out, with.out), 1e-5) << given;
    }
    with.expect_routing(ids.values(stream), weights.values(stream));
  }
}

// One token, a few, and all at once, in f32 and bf16: so the choice of experts runs in one launch with the sort, in one
// launch with the whole layer, or in a launch of its own.
TEST(FusedSharedTest, LayersWithAndWithoutFusedOnesAreAlikeInEveryLaunch) {
  const WithShared with(goldens[1]);
  for (const auto& device : devices())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << device->label << ", " << name(dtype));
      const StreamView stream = device->stream;
      MoeLayerOptions options;
      options.dtype = dtype;
      const MoeLayer fused(stream, with.fused.shape, with.fused.weights, options),
          plain(stream, with.model.config.shape, find_layer_weights(with.model.checkpoint, with.model.config), options);
      const std::int64_t all = with.model.tokens(), hidden = with.fused.shape.hidden;
      for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{5}, all}) {
        const DeviceTensor x(stream, dtype, {tokens, hidden},
                             {with.model.input.begin(), with.model.input.begin() + tokens * hidden});
        const auto out_of = [&](const MoeLayer& layer) {
          const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
          const DeviceTensor out(stream, DType::f32, {tokens, hidden});
          MoeForward args;
          args.x = x;
          args.out = out;
          args.workspace = workspace.view();
          layer.forward(stream, args);
          return out.values(stream);
        };
        EXPECT_LE(relative_error(out_of(fused), out_of(plain)), dtype == DType::f32 ? 1e-6 : 4e-3) << tokens;
      }
    }
}

TEST(FusedSharedTest, IsTheGoldenOverRanksInEveryStrategy) {
  const WithShared with(goldens[1]);
  const std::int64_t tokens = with.model.tokens(), hidden = with.fused.shape.hidden;
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
    SCOPED_TRACE(moecl::name(kind));
    Ranks on(2, Ranks::first_device, {});
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, with.fused.shape.experts);
      MoeWeights mine = with.fused.weights;
      mine.experts.assign(with.fused.weights.experts.begin() + rank.first_expert,
                          with.fused.weights.experts.begin() + rank.first_expert + rank.local_experts);
      ParallelPlan plan;
      plan.strategy = kind;
      ParallelLayer layer(rank, plan, with.fused.shape, mine);
      const std::int64_t first = world.rank() * (tokens / 2), count = world.rank() == 0 ? tokens / 2 : tokens - first;
      for (const bool given : {true, false}) {
        const std::vector<double> out =
            with.pass(world.stream(), first, count, given, [&](MoeForward& args) { layer.forward(args); });
        const std::vector<double> expected(with.out.begin() + first * hidden,
                                           with.out.begin() + (first + count) * hidden);
        EXPECT_LE(relative_error(out, expected), 1e-5) << given;
      }
    });
  }
}

/// Tokens [first, first + tokens) of a pass from C.
struct CPass {
  moecl_forward_args args = sized<moecl_forward_args>();

  /// @param given  the caller gives the routing; else the layer's router chooses
  CPass(CGroup& on, std::size_t rank, const WithShared& with, std::int64_t first, std::int64_t tokens, bool given) {
    const auto part = [&](const std::vector<double>& all, std::int64_t columns) {
      return std::vector<double>(all.begin() + first * columns, all.begin() + (first + tokens) * columns);
    };
    const std::int64_t hidden = with.fused.shape.hidden, top_k = with.fused.shape.router.top_k;
    args.tokens = tokens;
    args.x = on.allocate<unsigned char>(rank, encode(DType::f32, part(with.model.input, hidden)));
    if (given) args.ids = on.allocate<unsigned char>(rank, encode(DType::i32, part(with.ids, top_k)));
    if (given) args.weights = on.allocate<unsigned char>(rank, encode(DType::f32, part(with.weights, top_k)));
    args.out = on.allocate(rank, std::vector<float>(static_cast<std::size_t>(tokens * hidden)));
  }
  void expect_golden(const CGroup& on, std::size_t rank, const WithShared& with, std::int64_t first) const {
    const std::int64_t hidden = with.fused.shape.hidden;
    const std::vector<float> out = on.read(rank, args.out, static_cast<std::size_t>(args.tokens * hidden));
    const std::vector<double> expected(with.out.begin() + first * hidden,
                                       with.out.begin() + (first + args.tokens) * hidden);
    EXPECT_LE(relative_error({out.begin(), out.end()}, expected), 1e-5);
  }
};

TEST(FusedSharedTest, IsTheGoldenInC) {
  const WithShared with(golden_name);
  RawWeights raw;
  raw.desc.num_fused_shared_experts = with.count;
  CGroup on(1);
  LayerHandle layer;
  ASSERT_OK(moecl_layer_create(on.streams[0], &raw.desc, nullptr, layer.out()));
  auto info = sized<moecl_layer_info>();
  ASSERT_OK(moecl_layer_describe(layer, &info));
  EXPECT_EQ(info.experts, raw.desc.experts + with.count);
  EXPECT_EQ(info.top_k, raw.desc.top_k + with.count);
  EXPECT_EQ(info.shared_intermediate, 0);
  std::uint64_t bytes = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(layer, with.model.tokens(), &bytes));
  const moecl_device_array workspace = on.allocate(0, std::vector<float>(bytes / sizeof(float) + 1));
  for (const bool given : {true, false}) {  // the second pass has the same weights, replaced
    CPass pass(on, 0, with, 0, with.model.tokens(), given);
    pass.args.workspace = workspace;
    ASSERT_OK(moecl_layer_forward(layer, on.streams[0], &pass.args, 0, nullptr, nullptr));
    pass.expect_golden(on, 0, with, 0);
    ASSERT_OK(moecl_layer_replace(layer, on.streams[0], &raw.desc));
  }

  auto options = sized<moecl_layer_options>();
  options.num_fused_shared_experts = with.count;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.num_fused_shared_experts: 1; of a layer that is described desc says it",
               moecl_layer_create(on.streams[0], &raw.desc, &options, layer.out()));
  raw.desc.num_fused_shared_experts = 3;
  LayerHandle none;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "are not 3 of",
               moecl_layer_create(on.streams[0], &raw.desc, nullptr, none.out()));
}

/// Sets a [rows, columns] matrix as a shard of a layer under construction.
void set_shard(moecl_layer_builder* builder, const char* shard, std::int32_t expert, const HostMatrix& from) {
  auto tensor = sized<moecl_named_tensor>();
  tensor.name = "weight";
  tensor.shard = shard;
  tensor.expert = expert;
  tensor.dtype = MOECL_F32;
  tensor.rank = 2;
  tensor.shape[0] = from.rows;
  tensor.shape[1] = from.columns;
  const HostMatrix here = from.in_memory();
  tensor.data = here.data.memory();
  ASSERT_OK(moecl_layer_builder_set(builder, &tensor, nullptr));
}

TEST(FusedSharedTest, IsBuiltOneByOneAndLoadedInC) {
  const WithShared with(golden_name);
  RawWeights raw;
  raw.desc.num_fused_shared_experts = with.count;
  CGroup on(1);
  auto options = sized<moecl_layer_options>();
  options.dtype = MOECL_F32;
  Handle<moecl_layer_builder, moecl_layer_builder_destroy> builder;
  ASSERT_OK(moecl_layer_builder_create(on.streams[0], &raw.desc, nullptr, &options, builder.out()));
  for (std::size_t e = 0; e < raw.found.experts.size(); ++e) {
    set_shard(builder, "w1", static_cast<std::int32_t>(e), raw.found.experts[e].gate.plain);
    set_shard(builder, "w3", static_cast<std::int32_t>(e), raw.found.experts[e].up.plain);
    set_shard(builder, "w2", static_cast<std::int32_t>(e), raw.found.experts[e].down.plain);
  }
  set_shard(builder, "router", 0, raw.found.router);
  auto bias = sized<moecl_named_tensor>();
  bias.name = "e_score_correction_bias";
  bias.shard = "router";
  bias.dtype = MOECL_F32;
  bias.rank = 1;
  bias.shape[0] = raw.desc.experts;
  bias.data = raw.desc.selection_bias.data;
  ASSERT_OK(moecl_layer_builder_set(builder, &bias, nullptr));
  LayerHandle built, loaded;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "3 tensors are missing: shared.w1.weight, shared.w3.weight, shared.w2.weight",
               moecl_layer_builder_finish(builder, built.out()));
  set_shard(builder, "shared.w1", 0, raw.found.shared.gate.plain);
  set_shard(builder, "shared.w3", 0, raw.found.shared.up.plain);
  set_shard(builder, "shared.w2", 0, raw.found.shared.down.plain);
  ASSERT_OK(moecl_layer_builder_finish(builder, built.out()));
  options.num_fused_shared_experts = with.count;
  ASSERT_OK(moecl_layer_load(on.streams[0], golden_dir(golden_name).c_str(), -1, &options, loaded.out()));
  ASSERT_OK(moecl_layer_reload(loaded, on.streams[0], golden_dir(golden_name).c_str(), -1));
  std::uint64_t bytes = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(built, with.model.tokens(), &bytes));
  const moecl_device_array workspace = on.allocate(0, std::vector<float>(bytes / sizeof(float) + 1));
  for (moecl_layer* layer : {static_cast<moecl_layer*>(built), static_cast<moecl_layer*>(loaded)}) {
    CPass pass(on, 0, with, 0, with.model.tokens(), true);
    pass.args.workspace = workspace;
    ASSERT_OK(moecl_layer_forward(layer, on.streams[0], &pass.args, 0, nullptr, nullptr));
    pass.expect_golden(on, 0, with, 0);
  }
}

TEST(FusedSharedTest, IsTheGoldenInCOverRanksInEveryStrategy) {
  const WithShared with(golden_name);
  RawWeights raw;
  raw.desc.num_fused_shared_experts = with.count;
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    CGroup on(static_cast<std::int32_t>(ranks));
    on.run([&](std::size_t rank, moecl_communicator* communicator) {
      Handle<moecl_parallel_layer, moecl_parallel_layer_destroy> layer;
      ASSERT_OK(moecl_parallel_layer_create(communicator, &raw.desc, nullptr, nullptr, layer.out()));
      const std::int64_t tokens = with.model.tokens(), mine = static_cast<std::int64_t>(rank),
                         first = tokens * mine / ranks, count = tokens * (mine + 1) / ranks - first;
      for (const std::int32_t strategy :
           {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST}) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks << ", strategy " << strategy);
        auto step = sized<moecl_step>();
        step.strategy = strategy;
        CPass pass(on, rank, with, first, count, strategy % 2 == 0);
        ASSERT_OK(moecl_parallel_layer_forward_step(layer, &pass.args, &step));
        pass.expect_golden(on, rank, with, first);
      }
      ASSERT_OK(moecl_parallel_layer_replace(layer, &raw.desc));
      ASSERT_OK(moecl_stream_finish(on.streams[rank]));
    });
    EXPECT_EQ(on.failure(), "");
  }
}

TEST(FusedSharedTest, RefusesWhatIsNoRoutedExpert) {
  const Model model(goldens[1]), gated("qwen2-moe-e16k4");
  const auto refusal = [](const Model& of, std::int32_t count) {
    const MoeWeights weights = find_layer_weights(of.checkpoint, of.config);
    return std::string(error_of([&] { fuse_shared_experts(of.config.shape, weights, count); }).what());
  };
  EXPECT_THAT(refusal(model, 0), HasSubstr("fused shared experts: 0 of"));
  EXPECT_THAT(refusal(model, 3), HasSubstr("are not 3 of"));
  const Model plain("mixtral-e8k2");
  EXPECT_THAT(refusal(plain, 1), HasSubstr("of a shared intermediate size of 0"));
  const auto width =
      static_cast<std::int32_t>(gated.config.shape.shared_intermediate / gated.config.shape.intermediate);
  EXPECT_THAT(refusal(gated, width), HasSubstr("fused shared experts: "));
}

}  // namespace
}  // namespace moecl::test
