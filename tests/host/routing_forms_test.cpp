// A layer whose routing comes from outside, in each form, and whose outputs are asked for together or apart, is the
// golden layer: on one rank and on several, with every strategy.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/host/c_golden.hpp"
#include "tests/host/ranked_model.hpp"
#include "tests/oracle/moe_block.hpp"

namespace moecl::test {
namespace {

constexpr double tolerance = 1e-5;
constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

/// A golden case: its inputs, and PyTorch's outputs.
struct Golden {
  Model model;
  std::vector<double> logits, ids, weights, out, routed, shared, counts;

  explicit Golden(const std::string& name)
      : model(name),
        logits(golden_values(name, "router_logits")),
        ids(golden_values(name, "topk_ids")),
        weights(golden_values(name, "topk_weights")),
        out(golden_values(name, "output")),
        routed(golden_values(name, "routed_output")),
        counts(golden_values(name, "expert_counts")) {
    if (model.config.shape.shared_intermediate > 0) shared = golden_values(name, "shared_output");
  }
};

enum class Form { own_router, given_logits, ids, wide_ids };
constexpr Form forms[] = {Form::own_router, Form::given_logits, Form::ids, Form::wide_ids};
const char* name(Form form) {
  return form == Form::own_router     ? "own router"
         : form == Form::given_logits ? "given logits"
         : form == Form::ids          ? "ids"
                                      : "ids of 64 bits";
}

struct Given {
  std::vector<double> out, routed, shared, counts, ids;
  void append(const Given& more) {
    for (const auto field : {&Given::out, &Given::routed, &Given::shared, &Given::counts, &Given::ids})
      (this->*field).insert((this->*field).end(), (more.*field).begin(), (more.*field).end());
  }
};

/// Runs tokens [first, first + tokens) of the case, routed in that form. @param apart  asks for the parts of out alone
template <class Run>
Given pass(StreamView stream, const Golden& golden, Form form, std::int64_t first, std::int64_t tokens,
           std::int64_t local_experts, bool apart, Run run) {
  const MoeShape& shape = golden.model.config.shape;
  const std::int64_t hidden = shape.hidden, top_k = shape.router.top_k;
  const auto given = [&](DType dtype, const std::vector<double>& all, std::int64_t columns) {
    return DeviceTensor(stream, dtype, {tokens, columns},
                        {all.begin() + first * columns, all.begin() + (first + tokens) * columns});
  };
  const bool wide = form == Form::wide_ids;
  const DeviceTensor x = given(DType::f32, golden.model.input, hidden),
                     logits = given(DType::f32, golden.logits, shape.experts),
                     ids = given(wide ? DType::i64 : DType::i32, golden.ids, top_k),
                     weights = given(DType::f32, golden.weights, top_k);
  const DeviceTensor out(stream, DType::f32, {tokens, hidden}), routed(stream, DType::f32, {tokens, hidden}),
      shared(stream, DType::f32, {tokens, hidden}), chosen(stream, DType::i64, {tokens, top_k}),
      counts(stream, wide ? DType::i64 : DType::i32, {local_experts}), fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  const bool has_shared = shape.shared_intermediate > 0,
             chooses = form == Form::own_router || form == Form::given_logits;
  MoeForward args;
  args.x = x;
  if (form == Form::given_logits) args.given_logits = logits;
  if (!chooses) args.ids = ids, args.weights = weights;
  if (chooses) args.topk_ids = chosen;
  if (!apart) args.out = out;
  args.routed_out = routed;
  if (has_shared) args.shared_out = shared;
  args.expert_num_tokens = counts;
  args.fault = fault;
  run(args);
  EXPECT_EQ(fault.values(stream), std::vector<double>(4));
  return {apart ? std::vector<double>() : out.values(stream), routed.values(stream),
          has_shared ? shared.values(stream) : std::vector<double>(), counts.values(stream),
          (chooses ? chosen : ids).values(stream)};
}

/// The experts of each token in ascending order, because PyTorch does not order them.
std::vector<double> choices(std::vector<double> ids, std::int32_t top_k) {
  for (auto token = ids.begin(); token != ids.end(); token += top_k) std::sort(token, token + top_k);
  return ids;
}

void expect_golden(const Given& got, const Golden& golden, bool apart) {
  EXPECT_EQ(choices(got.ids, golden.model.config.shape.router.top_k),
            choices(golden.ids, golden.model.config.shape.router.top_k));
  if (!apart) {
    EXPECT_LE(relative_error(got.out, golden.out), tolerance);
  }
  EXPECT_LE(relative_error(got.routed, golden.routed), tolerance);
  EXPECT_LE(relative_error(got.shared, golden.shared), tolerance);
  EXPECT_EQ(got.counts, golden.counts);
}

constexpr const char* models[] = {"qwen2-moe-e16k4", "deepseek-v3-e32k8-g8", "llama4-e8k1", "mixtral-skew"};

class RoutingFormsTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(RoutingFormsTest);

TEST_P(RoutingFormsTest, OneRankIsTheGoldenLayer) {
  for (const char* model : models) {
    Golden golden(model);
    for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{7}}) {
      golden.model.options.chunk_tokens = chunk;
      const StreamView stream = device().stream;
      const MoeShape& shape = golden.model.config.shape;
      const MoeLayer layer(stream, shape, golden.model.weights(0, shape.experts), golden.model.options);
      const Buffer workspace(*stream.context, layer.workspace_bytes(golden.model.tokens()));
      for (const Form form : forms)
        for (const bool apart : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << model << ", " << name(form) << (apart ? ", apart" : "") << ", chunks of " << chunk);
          expect_golden(pass(stream, golden, form, 0, golden.model.tokens(), shape.experts, apart,
                             [&](MoeForward& args) {
                               args.workspace = workspace.view();
                               layer.forward(stream, args);
                             }),
                        golden, apart);
        }
    }
  }
}

TEST_P(RoutingFormsTest, ExpertsMayHaveAnInputOfTheirOwn) {
  const StreamView stream = device().stream;
  for (const char* model : {"qwen2-moe-e16k4", "llama4-e8k1"}) {
    const Golden golden(model);
    const MoeShape& shape = golden.model.config.shape;
    const std::int64_t tokens = golden.model.tokens();
    const MoeLayer layer(stream, shape, golden.model.weights(0, shape.experts), golden.model.options);
    const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
    const std::vector<double> other = rounded(DType::f32, normal(golden.model.input.size(), 7));
    const DeviceTensor input(stream, DType::f32, {tokens, shape.hidden}, other);
    const Given apart = pass(stream, golden, Form::own_router, 0, tokens, shape.experts, false, [&](MoeForward& args) {
      args.workspace = workspace.view();
      args.expert_input = input;
      layer.forward(stream, args);
    });
    // The router and the shared experts saw x.
    EXPECT_EQ(choices(apart.ids, shape.router.top_k), choices(golden.ids, shape.router.top_k));
    EXPECT_LE(relative_error(apart.shared, golden.shared), tolerance);
    // The routed experts saw `expert_input`: expected is a layer of the same routing that sees it as x.
    const Given same = pass(stream, golden, Form::given_logits, 0, tokens, shape.experts, true, [&](MoeForward& args) {
      args.workspace = workspace.view();
      args.x = input;
      layer.forward(stream, args);
    });
    EXPECT_LE(relative_error(apart.routed, same.routed), tolerance);
    std::vector<double> sum = golden.shared;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += same.routed[i];
    EXPECT_LE(relative_error(apart.out, sum), tolerance);
  }
}

TEST_P(RoutingFormsTest, IdsThatDoNotExistAreAFaultInEitherWidth) {
  const Golden golden("qwen2-moe-e16k4");
  const StreamView stream = device().stream;
  const MoeShape& shape = golden.model.config.shape;
  const MoeLayer layer(stream, shape, golden.model.weights(0, shape.experts), golden.model.options);
  const Buffer workspace(*stream.context, layer.workspace_bytes(2));
  const DeviceTensor x(stream, DType::f32, {2, shape.hidden}, std::vector<double>(2 * 64, 1)),
      out(stream, DType::f32, {2, shape.hidden}), weights(stream, DType::f32, {2, 4}, std::vector<double>(8, 1));
  for (const DType dtype : {DType::i32, DType::i64}) {
    const DeviceTensor ids(stream, dtype, {2, 4}, {0, 1, -1, 2, 3, 16, -1, 4}),
        fault(stream, DType::i32, {4}, {0, 0, 0, 0});
    MoeForward args;
    args.x = x;
    args.out = out;
    args.ids = ids;
    args.weights = weights;
    args.fault = fault;
    args.workspace = workspace.view();
    layer.forward(stream, args);
    const std::vector<double> word = fault.values(stream);
    EXPECT_NE(word[0], 0);
    EXPECT_EQ(word[1], 5);
    EXPECT_EQ(word[2], 16);
  }
}

TEST_P(RoutingFormsTest, RefusesWhatContradictsItself) {
  const Golden golden("mixtral-skew");  // without shared experts
  const StreamView stream = device().stream;
  const MoeShape& shape = golden.model.config.shape;
  const MoeLayer layer(stream, shape, golden.model.weights(0, shape.experts), golden.model.options);
  const Buffer workspace(*stream.context, layer.workspace_bytes(3));
  const DeviceTensor x(stream, DType::f32, {3, shape.hidden}), out(stream, DType::f32, {3, shape.hidden}),
      logits(stream, DType::f32, {3, shape.experts}), ids(stream, DType::i32, {3, 2}),
      weights(stream, DType::f32, {3, 2}), halves(stream, DType::f16, {3, shape.hidden});
  const auto refused = [&](const char* text, const std::function<void(MoeForward&)>& spoil) {
    MoeForward args;
    args.x = x;
    args.out = out;
    args.workspace = workspace.view();
    spoil(args);
    const std::uint64_t before = device().context->counters().kernels_launched;
    const Error error = error_of([&] { layer.forward(stream, args); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
    EXPECT_EQ(device().context->counters().kernels_launched, before);
  };
  refused("out: absent, and neither routed_out nor shared_out", [](MoeForward& a) { a.out = {}; });
  refused("shared_out: the layer has no shared experts", [&](MoeForward& a) { a.shared_out = x; });
  refused("give one of them", [&](MoeForward& a) { a.given_logits = logits, a.ids = ids, a.weights = weights; });
  refused("ids and weights: give both or neither", [&](MoeForward& a) { a.ids = ids; });
  refused("router_logits: there are none of the layer's router",
          [&](MoeForward& a) { a.given_logits = a.router_logits = logits; });
  refused("given_logits: expected f32[3, 8], got f32[3, 2]", [&](MoeForward& a) { a.given_logits = weights; });
  refused("given_logits: expected f32, f16 or bf16, got i32[3, 2]", [&](MoeForward& a) { a.given_logits = ids; });
  refused("ids: expected i32 or i64, got f32[3, 2]", [&](MoeForward& a) { a.ids = a.weights = weights; });
  refused("expert_input: expected f32, got f16[3, 64]", [&](MoeForward& a) { a.expert_input = halves; });
  refused("expert_input: expected the shape of x", [&](MoeForward& a) { a.expert_input = x.view.rows(0, 2); });
  refused("expert_num_tokens: expected i32[8], got i32[3, 2]", [&](MoeForward& a) { a.expert_num_tokens = ids; });
}

class RoutingFormsOfRanksTest : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Places, RoutingFormsOfRanksTest, testing::ValuesIn(settings_of_layers()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(RoutingFormsOfRanksTest, EveryStrategyIsTheGoldenLayer) {
  struct Case {
    const char* model;
    std::vector<std::int64_t> tokens;  ///< of each rank but the last, which has the rest
  };
  const Case cases[] = {{"llama4-e8k1", {}},  // weights on the input
                        {"llama4-e8k1", {4, 0}},
                        {"qwen2-moe-e16k4", {5}},
                        {"deepseek-v3-e32k8-g8", {0, 7}},
                        {"mixtral-skew", {3, 40, 0}},
                        {"qwen2-moe-e16k4", {4, 0, 9, 1, 3, 0, 6}}};
  for (const Case& c : cases) {
    const Golden golden(c.model);
    const MoeShape& shape = golden.model.config.shape;
    std::vector<std::int64_t> tokens = c.tokens;
    tokens.push_back(golden.model.tokens() - std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    Ranks on(static_cast<std::int32_t>(tokens.size()), GetParam().places,
             {std::chrono::milliseconds(60000), GetParam().transport});
    std::vector<std::vector<Given>> of_rank(tokens.size());
    on.group.run([&](Communicator& world) {
      const auto r = static_cast<std::size_t>(world.rank());
      const ExpertRank rank(world, 1, shape.experts);
      ParallelLayer layer(rank, {}, shape, golden.model.weights(rank.first_expert, rank.local_experts),
                          golden.model.options);
      const std::int64_t first = std::accumulate(tokens.begin(), tokens.begin() + world.rank(), std::int64_t{0});
      for (const StrategyKind kind : kinds)
        for (const Form form : forms)
          for (const bool apart : {false, true})
            of_rank[r].push_back(pass(world.stream(), golden, form, first, tokens[r], rank.local_experts, apart,
                                      [&](MoeForward& args) { layer.forward(args, {kind}); }));
      world.stream().finish();
    });
    for (std::size_t i = 0; i < of_rank.front().size(); ++i) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << moecl::name(kinds[i / 8]) << ", " << tokens.size()
                                      << " ranks, " << name(forms[i / 2 % 4]));
      Given all;
      for (const std::vector<Given>& passes : of_rank) all.append(passes[i]);
      expect_golden(all, golden, i % 2 == 1);
    }
  }
}

// An expert that a token names twice counts twice. A weight that is not a number spoils only its own token. An id that
// does not exist gives nothing, and is a fault on each rank that sees it.
TEST_P(RoutingFormsOfRanksTest, DuplicateIdsWeightsThatAreNoNumbersAndIdsThatDoNotExist) {
  const Golden golden("qwen2-moe-e16k4");
  const MoeShape& shape = golden.model.config.shape;
  const std::int64_t top_k = shape.router.top_k, tokens = golden.model.tokens();
  const auto at = [&](std::int64_t token, std::int64_t k) { return static_cast<std::size_t>(token * top_k + k); };
  std::vector<double> ids = golden.ids, weights = golden.weights;
  ids[at(1, 1)] = ids[at(1, 0)];
  for (std::int64_t k = 0; k < top_k; ++k) ids[at(14, k)] = 3;
  constexpr std::int64_t no_number = 6, no_expert = 20;
  weights[at(no_number, 2)] = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> known = ids, known_weights = weights;
  ids[at(no_expert, 1)] = shape.experts;  // an expert that does not exist gives nothing
  known_weights[at(no_expert, 1)] = 0;
  const MoeWeights all = golden.model.weights(0, shape.experts);
  const std::vector<float> x(golden.model.input.begin(), golden.model.input.end());
  std::vector<double> expected = oracle::moe_block({shape, all, {}, {}}, x, known, known_weights).out;

  Ranks on(3, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport});
  const auto first_of = [&](std::int64_t rank) { return std::min<std::int64_t>(rank * 12, tokens); };
  std::vector<std::vector<double>> of_rank[4];
  for (auto& ranks : of_rank) ranks.resize(3);
  on.group.run([&](Communicator& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    const StreamView stream = world.stream();
    const ExpertRank rank(world, 1, shape.experts);
    ParallelLayer layer(rank, {}, shape, golden.model.weights(rank.first_expert, rank.local_experts),
                        golden.model.options);
    const std::int64_t first = first_of(world.rank()), mine = first_of(world.rank() + 1) - first;
    const auto given = [&](DType dtype, const std::vector<double>& values, std::int64_t columns) {
      return DeviceTensor(stream, dtype, {mine, columns},
                          {values.begin() + first * columns, values.begin() + (first + mine) * columns});
    };
    const DeviceTensor rows = given(DType::f32, golden.model.input, shape.hidden),
                       chosen = given(DType::i32, ids, top_k), weighed = given(DType::f32, weights, top_k);
    for (std::size_t i = 0; i < 4; ++i) {
      const DeviceTensor out(stream, DType::f32, {mine, shape.hidden}), fault(stream, DType::i32, {4}, {0, 0, 0, 0});
      MoeForward args;
      args.x = rows;
      args.ids = chosen;
      args.weights = weighed;
      args.out = out;
      args.fault = fault;
      layer.forward(args, {kinds[i]});
      of_rank[i][r] = out.values(stream);
      const bool seen = (first <= no_expert && no_expert < first + mine) || kinds[i] == StrategyKind::all_gather ||
                        kinds[i] == StrategyKind::multicast;
      EXPECT_EQ(fault.values(stream)[0] != 0, seen) << moecl::name(kinds[i]);
    }
  });
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(moecl::name(kinds[i]));
    std::vector<double> out;
    for (const std::vector<double>& rows : of_rank[i]) out.insert(out.end(), rows.begin(), rows.end());
    ASSERT_EQ(out.size(), expected.size());
    for (std::int64_t h = 0; h < shape.hidden; ++h) {
      const auto spoilt = static_cast<std::size_t>(no_number * shape.hidden + h);
      EXPECT_TRUE(std::isnan(out[spoilt]));
      out[spoilt] = expected[spoilt] = 0;
    }
    EXPECT_LE(relative_error(out, expected), tolerance);
  }
}

TEST_P(RoutingFormsOfRanksTest, WhatOneRankIsRefusedNoRankEnqueues) {
  const Golden golden("qwen2-moe-e16k4");
  const MoeShape& shape = golden.model.config.shape;
  Ranks on(2, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport});
  std::vector<std::uint64_t> launched(2);
  const std::vector<std::string> texts = failures(on, [&](Communicator& world) {
    const ExpertRank rank(world, 1, shape.experts);
    ParallelLayer layer(rank, {StrategyKind::mc2}, shape, golden.model.weights(rank.first_expert, rank.local_experts));
    const DeviceTensor x(world.stream(), DType::f32, {3, shape.hidden}),
        out(world.stream(), DType::f32, {3, shape.hidden}),
        logits(world.stream(), DType::f32, {3, shape.experts - world.rank()});
    MoeForward args;
    args.x = x;
    args.out = out;
    args.given_logits = logits;
    world.share("layers", {});
    const std::uint64_t before = world.stream().context->counters().kernels_launched;
    try {
      layer.forward(args);
    } catch (const Error&) {
      launched[static_cast<std::size_t>(world.rank())] = world.stream().context->counters().kernels_launched - before;
      throw;
    }
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, testing::HasSubstr("given_logits: expected f32[3, 16], got f32[3, 15]"));
  EXPECT_THAT(launched, testing::Each(0U));
}

}  // namespace
}  // namespace moecl::test
