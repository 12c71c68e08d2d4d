// Options of a layer over ranks: micro-batches, shared experts that are divided, tokens that are divided already,
// tokens that take no expert, hidden states of three dimensions. Each gives the result of the layer on one rank.
#include <moecl/random_checkpoint.hpp>

#include <gmock/gmock.h>

#include "tests/host/ranked_model.hpp"
#include "tests/host/static_scales.hpp"

namespace moecl::test {
namespace {

constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

class ParallelOptionsTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count) const {
    return {count, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport}};
  }
  TestDevice& first() const { return *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0]; }
  bool one_platform() const { return GetParam().places != Ranks::all_platforms; }
  bool same_bits(StrategyKind kind) const {
    return one_platform() && one_variant(first()) && (kind == StrategyKind::mc2 || kind == StrategyKind::all2all_v);
  }
};
INSTANTIATE_TEST_SUITE_P(Places, ParallelOptionsTest, testing::ValuesIn(settings_of_layers()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(ParallelOptionsTest, TwoMicroBatchesAreOneBatch) {
  struct Case {
    const char* model;
    std::int32_t ranks, tp;
    std::vector<std::int64_t> tokens;
  };
  for (const Case& c : {Case{"qwen2-moe-e16k4", 2, 1, {5, 28}}, Case{"qwen2-moe-e16k4", 3, 1, {1, 0, 32}},
                        Case{"deepseek-v3-e32k8-g8", 4, 2, {20, 13}}}) {
    const Model model(c.model);
    Ranks on = make(c.ranks);
    for (const StrategyKind kind : kinds) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", " << c.ranks << " ranks");
      ParallelPlan two{kind}, too_few{kind};
      two.dbo_prefill_token_threshold = *std::max_element(c.tokens.begin(), c.tokens.end());
      too_few.dbo_prefill_token_threshold = *two.dbo_prefill_token_threshold + 1;
      const Outputs one = of_ranks(on, model, {kind}, c.tp, c.tokens, one_platform()),
                    split = of_ranks(on, model, two, c.tp, c.tokens, one_platform());
      EXPECT_EQ(split.ids, one.ids);
      if (same_bits(kind)) {
        EXPECT_TRUE(split == one) << relative_error(split.out, one.out);
      } else {
        EXPECT_LE(relative_error(split.out, one.out), 1e-6);
        EXPECT_LE(relative_error(split.routed, one.routed), 1e-6);
      }
      if (one_platform()) {
        EXPECT_TRUE(of_ranks(on, model, too_few, c.tp, c.tokens, true) == one);
      }
    }
  }
}

TEST_P(ParallelOptionsTest, TokensKeepTheirReplicasInMicroBatches) {
  const Model model("mixtral-skew");
  PlaceExperts problem{model.config.shape.experts, 4};
  problem.redundant = 16;
  ParallelPlan plan{StrategyKind::mc2, place_experts(problem)};
  Ranks on = make(4);
  const std::vector<std::int64_t> tokens = {3, 8, 1, model.tokens() - 12};
  const Outputs one = of_ranks(on, model, plan, 1, tokens, one_platform());
  plan.dbo_prefill_token_threshold = 0;
  const Outputs two = of_ranks(on, model, plan, 1, tokens, one_platform());
  EXPECT_EQ(two.ids, one.ids);
  if (same_bits(StrategyKind::mc2)) {
    EXPECT_TRUE(two == one) << relative_error(two.out, one.out);
  } else {
    EXPECT_LE(relative_error(two.out, one.out), 1e-6);
  }
}

TEST_P(ParallelOptionsTest, LongInputsRunInChunksOfAsManyOnEveryRank) {
  Model model("mixtral-skew");
  PlaceExperts problem{model.config.shape.experts, 4};
  problem.redundant = 16;  // places depend on the number of the token
  ParallelPlan plan{StrategyKind::mc2, place_experts(problem)};
  Ranks on = make(4);
  const std::vector<std::int64_t> tokens = {3, 0, 1, model.tokens() - 4};
  for (const StrategyKind kind : kinds)
    for (const bool halves : {false, true}) {
      SCOPED_TRACE(testing::Message() << name(kind) << (halves ? ", micro-batches" : ""));
      plan.strategy = kind;
      plan.dbo_prefill_token_threshold.reset();
      model.options.chunk_tokens = 0;
      const Outputs whole = of_ranks(on, model, plan, 1, tokens, one_platform());
      if (halves) plan.dbo_prefill_token_threshold = 0;
      model.options.chunk_tokens = 5;
      const Outputs chunked = of_ranks(on, model, plan, 1, tokens, one_platform());
      EXPECT_EQ(chunked.ids, whole.ids);
      if (same_bits(kind)) {
        EXPECT_TRUE(chunked == whole) << relative_error(chunked.out, whole.out);
      } else {
        EXPECT_LE(relative_error(chunked.out, whole.out), 1e-6);
      }
    }
}

TEST_P(ParallelOptionsTest, TheBatchedLayoutIsTheLayerOfOneRank) {
  for (const char* name_of : {"qwen2-moe-e16k4", "mixtral-skew"}) {
    Model model(name_of);
    const Outputs standard = of_one_rank(first(), model);
    model.options.layout = ExpertLayout::batched;
    for (const std::int32_t ranks : {1, 3}) {
      Ranks on = make(ranks);
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(ranks), 4);
      tokens.back() = model.tokens() - 4 * (ranks - 1);
      for (const StrategyKind kind : kinds) {
        SCOPED_TRACE(testing::Message() << name_of << ", " << name(kind) << ", " << ranks << " ranks");
        const Outputs got = of_ranks(on, model, {kind}, 1, tokens, one_platform());
        EXPECT_EQ(got.ids, standard.ids);
        EXPECT_LE(relative_error(got.out, standard.out), 1e-6);
        EXPECT_LE(relative_error(got.routed, standard.routed), 1e-6);
      }
    }
  }
}

TEST_P(ParallelOptionsTest, RanksTakeTheCallersRouting) {
  const Model model("qwen2-moe-e16k4");
  PlaceExperts problem{model.config.shape.experts, 2};
  problem.redundant = 2;
  const std::int64_t top_k = model.config.shape.router.top_k, shares[] = {15, model.tokens() - 15};
  Ranks on = make(2);
  for (const StrategyKind kind : kinds) {
    SCOPED_TRACE(name(kind));
    const ParallelPlan plan{kind, place_experts(problem)};
    const Outputs own = of_ranks(on, model, plan, 1, {shares[0], shares[1]}, false);
    const auto of_rank = [&](std::size_t rank, DType dtype, const std::vector<double>& all) {
      const auto begin = all.begin() + (rank == 0 ? 0 : shares[0] * top_k);
      return DeviceTensor(on.streams()[rank], dtype, {shares[rank], top_k}, {begin, begin + shares[rank] * top_k});
    };
    const DeviceTensor ids[] = {of_rank(0, DType::i32, own.ids), of_rank(1, DType::i32, own.ids)},
                       weights[] = {of_rank(0, DType::f32, own.weights), of_rank(1, DType::f32, own.weights)};
    RankedOptions options;
    options.change = [&](ParallelLayer::Forward& args, std::int64_t first) {
      args.ids = ids[first == 0 ? 0 : 1];
      args.weights = weights[first == 0 ? 0 : 1];
      args.topk_ids = args.topk_weights = {};
    };
    const Outputs given = of_ranks(on, model, plan, 1, {shares[0], shares[1]}, false, options);
    EXPECT_EQ(given.logits, own.logits);
    EXPECT_EQ(given.out, own.out);
    EXPECT_EQ(given.routed, own.routed);
  }
}

TEST_P(ParallelOptionsTest, SharedExpertsMayBeDivided) {
  const Model model("qwen2-moe-e16k4");  // gated
  const Outputs expected = of_one_rank(first(), model);
  Ranks on = make(4);
  for (const SharedSharding sharding :
       {SharedSharding::replicated, SharedSharding::tokens, SharedSharding::intermediate})
    for (const auto& [tp, tokens] :
         {std::pair(2, std::vector<std::int64_t>{1, 32}), std::pair(4, std::vector<std::int64_t>{33}),
          std::pair(1, std::vector<std::int64_t>{3, 0, 10, 20})}) {
      SCOPED_TRACE(testing::Message() << "sharding " << static_cast<int>(sharding) << ", tp " << tp);
      ParallelPlan plan{StrategyKind::mc2};
      plan.shared_sharding = sharding;
      const Outputs got = of_ranks(on, model, plan, tp, tokens, one_platform());
      if (same_bits(StrategyKind::mc2) && sharding != SharedSharding::intermediate) {
        EXPECT_TRUE(got == expected) << relative_error(got.out, expected.out);
      } else {
        EXPECT_EQ(got.ids, expected.ids);
        EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
      }
    }
}

TEST_P(ParallelOptionsTest, ExpertsBringTheirStaticScalesAlong) {
  const TempDir dir;
  Model model(with_static_scales(dir, 0.625F), {});
  model.input = rounded(DType::f32, normal(9 * static_cast<std::size_t>(model.hidden()), 5));
  model.options = stored_options(model.config, find_layer_weights(model.checkpoint, model.config));
  model.options.dtype = DType::f32;
  ASSERT_TRUE(model.options.activations.static_scale);
  const Outputs expected = of_one_rank(first(), model);
  Ranks on = make(2);
  for (const StrategyKind kind : kinds) {
    SCOPED_TRACE(name(kind));
    const Outputs got = of_ranks(on, model, {kind}, 1, {4, 5}, one_platform());
    EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
  }
}

TEST_P(ParallelOptionsTest, RowsTravelAsTheCodesOfTheLayer) {
  Model model("mixtral-e8k2");
  OperandQuant limited = QuantScheme::fp8_w8a8().activations;
  limited.most_amax = 1.5F, limited.least_scale = 0.003F;  // as fbgemm's activations
  const auto rounded_by = [](OperandQuant how, ScaleRounding rounding) {
    how.rounding = rounding;
    return how;
  };
  const OperandQuant mxfp8 = QuantScheme::mx(CodeType::f8_e4m3);
  for (const auto& [wire, activations] :
       {std::pair(WireFormat::int8, QuantScheme::int8_w8a8().activations),
        std::pair(WireFormat::fp8, QuantScheme::fp8_w8a8().activations), std::pair(WireFormat::fp8, limited),
        std::pair(WireFormat::fp8, rounded_by(QuantScheme::fp8_w8a8().activations, ScaleRounding::ratio_up)),
        std::pair(WireFormat::mxfp8, mxfp8), std::pair(WireFormat::mxfp8, rounded_by(mxfp8, ScaleRounding::ratio_up)),
        std::pair(WireFormat::mxfp8, rounded_by(mxfp8, ScaleRounding::amax_even))}) {
    model.options.activations = activations;
    const Outputs expected = of_one_rank(first(), model);
    Ranks on = make(2);
    for (const StrategyKind kind : kinds) {
      if (kind == StrategyKind::mc2 && wire == WireFormat::int8) continue;  // its rows come home as codes too
      SCOPED_TRACE(testing::Message() << name(kind) << ", " << name(wire) << ", " << describe(activations));
      ParallelPlan plan{kind};
      plan.wire = wire;
      const Outputs got = of_ranks(on, model, plan, 1, {model.tokens() / 2, (model.tokens() + 1) / 2}, one_platform());
      if (same_bits(kind)) {
        EXPECT_TRUE(got == expected) << relative_error(got.out, expected.out);
      } else {
        // A quotient next to a tie may go to the other side on another platform.
        EXPECT_LE(relative_error(got.out, expected.out), one_platform() ? 1e-6 : 5e-3);
      }
    }
  }
}

TEST_P(ParallelOptionsTest, DividedSharedExpertsAddTheirDownBiasOnce) {
  const TempDir dir;
  write_random_checkpoint(
      dir.file("model"),
      {R"({"model_type": "ernie4_5_moe", "hidden_size": 48, "num_hidden_layers": 1, "moe_layer_start_index": 0,
           "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 20, "use_bias": true})",
       1, 0, DType::f32});
  const Model model(Checkpoint::open(dir.file("model")), rounded(DType::f32, normal(9 * std::size_t{48}, 5)));
  ASSERT_TRUE(model.config.shape.shared_bias);
  const Outputs expected = of_one_rank(first(), model);
  Ranks on = make(4);
  ParallelPlan plan{StrategyKind::mc2};
  plan.shared_sharding = SharedSharding::intermediate;
  for (const std::int32_t tp : {2, 4}) {
    const std::vector<std::int64_t> tokens = tp == 2 ? std::vector<std::int64_t>{3, 6} : std::vector<std::int64_t>{9};
    EXPECT_LE(relative_error(of_ranks(on, model, plan, tp, tokens, one_platform()).out, expected.out), 1e-6) << tp;
  }
}

TEST_P(ParallelOptionsTest, TpRanksMayBringTokensOfTheirOwn) {
  const Model model("qwen2-moe-e16k4");
  const Outputs expected = of_one_rank(first(), model);
  Ranks on = make(4);
  ParallelPlan plan;
  plan.replace_allreduce = true;
  for (const StrategyKind kind : kinds) {
    SCOPED_TRACE(name(kind));
    plan.strategy = kind;
    const Outputs got = of_ranks(on, model, plan, 2, {9, 8, 16, 0}, one_platform());
    EXPECT_EQ(got.ids, expected.ids);
    if (same_bits(kind)) {
      EXPECT_TRUE(got == expected) << relative_error(got.out, expected.out);
    } else {
      EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
    }
  }
}

// The tokens are gathered before the parts of the shared experts, and the sums are scattered after them.
TEST_P(ParallelOptionsTest, TpRanksOfOwnTokensMayDivideSharedExperts) {
  const Model model("qwen2-moe-e16k4");  // gated
  const Outputs expected = of_one_rank(first(), model);
  Ranks on = make(4);
  ParallelPlan plan;
  plan.replace_allreduce = true;
  for (const StrategyKind kind : kinds)
    for (const SharedSharding sharding : {SharedSharding::tokens, SharedSharding::intermediate}) {
      SCOPED_TRACE(testing::Message() << name(kind) << ", " << name(sharding));
      plan.strategy = kind;
      plan.shared_sharding = sharding;
      const Outputs got = of_ranks(on, model, plan, 2, {9, 8, 16, 0}, one_platform());
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
    }
}

/// Bytes that each rank receives in a pass that gives `out` alone or, with `apart`, the routed part as well.
std::vector<std::uint64_t> bytes_of_pass(Ranks& on, const Model& model, const ParallelPlan& plan, std::int32_t tp,
                                         const std::vector<std::int64_t>& tokens, bool apart,
                                         std::vector<double>& out) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(on.group.size()));
  std::vector<std::vector<double>> parts(bytes.size());
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, tp, model.config.shape.experts);
    const auto r = static_cast<std::size_t>(world.rank());
    const auto of = static_cast<std::size_t>(plan.replace_allreduce ? rank.ep.rank() : rank.dp.rank());
    const std::int64_t first =
        std::accumulate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(of), std::int64_t{0});
    ParallelLayer layer(rank, plan, model.config.shape, model.weights(rank.first_expert, rank.local_experts),
                        model.options);
    const DeviceTensor x(
        world.stream(), DType::f32, {tokens[of], model.hidden()},
        {model.input.begin() + first * model.hidden(), model.input.begin() + (first + tokens[of]) * model.hidden()}),
        all(world.stream(), DType::f32, {tokens[of], model.hidden()}),
        routed(world.stream(), DType::f32, {tokens[of], model.hidden()});
    MoeForward args;
    args.x = x;
    args.out = all;
    if (apart) args.routed_out = routed;
    const AgreedStep step = layer.agree({}, tokens[of]);
    const std::uint64_t before = world.bytes_received();
    layer.forward(args, step);
    bytes[r] = world.bytes_received() - before;
    parts[r] = all.values(world.stream());
    world.stream().finish();
  });
  out.clear();
  for (std::size_t r = 0; r < parts.size(); r += static_cast<std::size_t>(plan.replace_allreduce ? 1 : tp))
    out.insert(out.end(), parts[r].begin(), parts[r].end());
  return bytes;
}

// dispatch/STRATEGIES.md has the formulas.
TEST_P(ParallelOptionsTest, SharedExpertsOfATpGroupMoveWhatIsSaid) {
  const Model model("qwen2-moe-e16k4");
  const Outputs expected = of_one_rank(first(), model);
  const std::uint64_t row = static_cast<std::uint64_t>(model.hidden()) * 4, top_k = 4, R = 4, N = 2, D = 2;
  const std::vector<std::int64_t> of_dp = {14, 19}, of_ranks = {9, 8, 16, 0};
  Ranks on = make(4);
  const auto moved = [&](StrategyKind kind, SharedSharding sharding, bool own_tokens, bool apart) {
    ParallelPlan plan{kind};
    plan.shared_sharding = sharding;
    plan.replace_allreduce = own_tokens;
    std::vector<double> out;
    const auto bytes = bytes_of_pass(on, model, plan, 2, own_tokens ? of_ranks : of_dp, apart, out);
    EXPECT_LE(relative_error(out, expected.out), 1e-6);
    return bytes;
  };
  for (std::size_t r = 0; r < R; ++r) {
    SCOPED_TRACE(r);
    const auto T = static_cast<std::uint64_t>(model.tokens()), T_d = static_cast<std::uint64_t>(of_dp[r / N]),
               t = T_d / N + (r % N < T_d % N ? 1 : 0), G = (T_d - t) * row;
    const std::uint64_t mc2 = (T - t) * (row + 4 * top_k) + (R - 1) * t * top_k * row,
                        allgather = (T - T_d) * (row + 8 * top_k) + (D - 1) * T_d * row,
                        all_reduce = (N - 1) * t * row + G;
    EXPECT_EQ(moved(StrategyKind::mc2, SharedSharding::replicated, false, false)[r], mc2 + G);
    EXPECT_EQ(moved(StrategyKind::mc2, SharedSharding::tokens, false, false)[r], mc2 + G + (T_d - t) * (row + 4));
    EXPECT_EQ(moved(StrategyKind::mc2, SharedSharding::intermediate, false, true)[r], mc2 + G + all_reduce);
    EXPECT_EQ(moved(StrategyKind::mc2, SharedSharding::intermediate, false, false)[r], mc2 + all_reduce);
    EXPECT_EQ(moved(StrategyKind::all_gather, SharedSharding::intermediate, false, true)[r],
              allgather + all_reduce + all_reduce);
    EXPECT_EQ(moved(StrategyKind::all_gather, SharedSharding::intermediate, false, false)[r], allgather + all_reduce);
    const auto own = static_cast<std::uint64_t>(of_ranks[r]),
               T_g = static_cast<std::uint64_t>(of_ranks[r / N * N] + of_ranks[r / N * N + 1]);
    EXPECT_EQ(moved(StrategyKind::mc2, SharedSharding::intermediate, true, false)[r],
              (T - own) * (row + 4 * top_k) + (R - 1) * own * top_k * row + (T_g - own) * row + (N - 1) * own * row);
  }
}

TEST_P(ParallelOptionsTest, RoomForTheRowsOfEachExpert) {
  Model model("qwen2-moe-e16k4");
  const Outputs expected = of_one_rank(first(), model);
  model.options.layout = ExpertLayout::batched;
  const std::vector<std::int64_t> tokens = {20, 0, 13};
  std::vector<double> counts(static_cast<std::size_t>(model.config.shape.experts));
  for (const double id : expected.ids) ++counts[static_cast<std::size_t>(id)];
  for (const StrategyKind kind : kinds) {
    SCOPED_TRACE(name(kind));
    model.options.rows_per_expert = 40;
    Ranks on = make(3);
    std::vector<double> counted;
    std::vector<std::vector<double>> of_rank(3), out(3);
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      const auto r = static_cast<std::size_t>(world.rank());
      const std::int64_t first_token = r == 2 ? 20 : 0;
      ParallelLayer layer(rank, {kind}, model.config.shape, model.weights(rank.first_expert, rank.local_experts),
                          model.options);
      const DeviceTensor x(world.stream(), DType::f32, {tokens[r], model.hidden()},
                           {model.input.begin() + first_token * model.hidden(),
                            model.input.begin() + (first_token + tokens[r]) * model.hidden()}),
          all(world.stream(), DType::f32, {tokens[r], model.hidden()}),
          num(world.stream(), DType::i32, {rank.local_experts});
      MoeForward args;
      args.x = x;
      args.out = all;
      args.expert_num_tokens = num;
      layer.forward(args);
      out[r] = all.values(world.stream());
      of_rank[r] = num.values(world.stream());
      world.stream().finish();
    });
    std::vector<double> whole;
    for (std::size_t r = 0; r < 3; ++r) {
      whole.insert(whole.end(), out[r].begin(), out[r].end());
      counted.insert(counted.end(), of_rank[r].begin(), of_rank[r].end());
    }
    EXPECT_LE(relative_error(whole, expected.out), 1e-6);
    EXPECT_EQ(counted, counts);
    model.options.rows_per_expert = 32;
    Ranks narrow = make(3);
    EXPECT_THAT(error_of([&] { of_ranks(narrow, model, {kind}, 1, tokens, false); }).what(),
                testing::HasSubstr("dispatch: an expert has room for 32 rows, and 33 tokens may choose it"));
  }
}

TEST_P(ParallelOptionsTest, HiddenStatesMayHaveThreeDimensions) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  const auto in_three = [](TensorView& view) {
    view = TensorView(view.buffer, view.dtype, {3, view.shape[0] / 3, view.shape[1]});
  };
  RankedOptions options;
  options.change = [&](ParallelLayer::Forward& args, std::int64_t) {
    for (TensorView* view : {&args.x, &args.out, &args.routed_out}) in_three(*view);
  };
  const Outputs flat = of_ranks(on, model, {StrategyKind::mc2}, 1, {12, 21}, false);
  EXPECT_TRUE(of_ranks(on, model, {StrategyKind::mc2}, 1, {12, 21}, false, options) == flat);

  options.change = [&](ParallelLayer::Forward& args, std::int64_t) { in_three(args.x); };
  Ranks others = make(2);
  EXPECT_THAT(error_of([&] {
                of_ranks(others, model, {StrategyKind::mc2}, 1, {12, 21}, false, options);
              }).what(),
              testing::HasSubstr("out: expected the shape of x, f32[3, "));
}

// Where nothing is added to the routed sums, the strategy writes them into `out` itself.
TEST_P(ParallelOptionsTest, RoutedSumsAreTheOutputOfALayerWithoutSharedExperts) {
  for (const char* name_of : {"qwen3-moe-e64k8", "qwen2-moe-e16k4"}) {
    const Model model(name_of);
    Ranks on = make(4);
    RankedOptions options;
    options.change = [](ParallelLayer::Forward& args, std::int64_t) { args.routed_out = {}; };
    const std::vector<std::int64_t> tokens = {0, model.tokens()};
    for (const StrategyKind kind : kinds) {
      SCOPED_TRACE(testing::Message() << name_of << ", " << name(kind));
      const Outputs told = of_ranks(on, model, {kind}, 2, tokens, false),
                    silent = of_ranks(on, model, {kind}, 2, tokens, false, options);
      EXPECT_EQ(silent.out, told.out);
    }
  }
}

TEST_P(ParallelOptionsTest, FinishedTokensTakeNoExpert) {
  const Model model("qwen2-moe-e16k4");
  const auto is_finished = [](std::int64_t token) { return token % 3 == 1 || token > 20; };
  const auto mask = [&](StreamView stream, std::int64_t first, std::int64_t tokens) {
    std::vector<double> values;
    for (std::int64_t t = first; t < first + tokens; ++t) values.push_back(is_finished(t) ? 1 : 0);
    return DeviceTensor(stream, DType::u8, {tokens}, values);
  };
  TestDevice& device = first();
  const Outputs all = of_one_rank(device, model);
  Outputs expected = all;
  for (std::int64_t t = 0; t < model.tokens(); ++t) {
    if (!is_finished(t)) continue;
    std::fill_n(expected.routed.begin() + t * model.hidden(), model.hidden(), 0.0);
    for (std::int64_t i = t * model.hidden(); i < (t + 1) * model.hidden(); ++i)  // the shared part remains
      expected.out[static_cast<std::size_t>(i)] -= all.routed[static_cast<std::size_t>(i)];
    std::fill_n(expected.ids.begin() + t * 4, 4, -1.0);
  }
  const auto expect_it = [&](const Outputs& got) {
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_LE(relative_error(got.logits, expected.logits), 1e-6);
    EXPECT_LE(relative_error(got.routed, expected.routed), 1e-6);
    EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
    for (std::int64_t t = 0; t < model.tokens(); ++t)
      if (is_finished(t)) {
        EXPECT_EQ(got.routed[static_cast<std::size_t>(t * model.hidden())], 0) << t;
      }
  };
  const MoeLayer layer(device.stream, model.config.shape, find_layer_weights(model.checkpoint, model.config));
  const Buffer workspace(*device.context, layer.workspace_bytes(model.tokens()));
  const DeviceTensor finished = mask(device.stream, 0, model.tokens());
  const DeviceTensor fault(device.stream, DType::i32, {4}, {0, 0, 0, 0});
  expect_it(forward<MoeLayer::Forward>(device.stream, model, 0, model.tokens(), [&](MoeLayer::Forward& args) {
    args.workspace = workspace.view();
    args.finished = finished;
    args.fault = fault;
    layer.forward(device.stream, args);
  }));
  EXPECT_EQ(fault.values(device.stream), std::vector<double>(4));

  Ranks on = make(2);
  const std::vector<std::int64_t> tokens = {15, 18};
  const DeviceTensor masks[] = {mask(on.streams()[0], 0, 15), mask(on.streams()[1], 15, 18)};
  RankedOptions options;
  options.change = [&](ParallelLayer::Forward& args, std::int64_t first) { args.finished = masks[first == 0 ? 0 : 1]; };
  for (const StrategyKind kind : kinds) {
    SCOPED_TRACE(name(kind));
    ParallelPlan plan{kind};
    expect_it(of_ranks(on, model, plan, 1, tokens, false, options));
    plan.dbo_prefill_token_threshold = 0;
    expect_it(of_ranks(on, model, plan, 1, tokens, false, options));
  }
}

}  // namespace
}  // namespace moecl::test
