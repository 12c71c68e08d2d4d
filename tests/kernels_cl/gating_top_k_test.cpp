#include "tests/cases/gating_top_k.hpp"

#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

class GatingTopKTest : public OperatorTest<GatingTopKCase> {
 protected:
  void check(const std::vector<double>& logits, std::int64_t experts, const std::vector<double>& bias,
             const RouterSpec& spec, DType dtype = DType::f32) const {
    OperatorTest::check({experts, logits, bias, spec, dtype});
  }
};
MOECL_ON_EVERY_DEVICE(GatingTopKTest);

const RouterSpec deepseek_v3{
    8, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 8, 4, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F};

TEST_P(GatingTopKTest, RoutesAsTheFamiliesDo) {
  RouterSpec qwen3{8};
  qwen3.renormalise = true;
  check(normal(17 * 128, 1), 128, {}, qwen3);
  check(normal(5 * 256, 2), 256, normal(256, 3), deepseek_v3);
  check(normal(3 * 60, 4), 60, {}, {4, ScoreFunction::softmax, ScoreOrder::after_top_k});
  check(normal(3 * 16, 5), 16, {}, {1, ScoreFunction::sigmoid, ScoreOrder::after_top_k});
  RouterSpec deepseek_v2{6};
  deepseek_v2.groups = 8;
  deepseek_v2.kept_groups = 3;
  deepseek_v2.scaling_factor = 16;
  check(normal(4 * 160, 6), 160, {}, deepseek_v2);
}

TEST_P(GatingTopKTest, NoTokensOneExpertAllExpertsManyExperts) {
  check({}, 8, {}, {2});
  check({-3}, 1, {}, {1});
  check(normal(3 * 7, 7), 7, {}, {7});
  check(normal(2 * 300, 8), 300, normal(300, 9), {300, ScoreFunction::sigmoid});
  check(normal(4096, 10), 4096, {}, {8});
  RouterSpec one_expert_a_group{5, ScoreFunction::sigmoid};
  one_expert_a_group.groups = 64;
  one_expert_a_group.kept_groups = 9;
  for (const GroupScore score : {GroupScore::max, GroupScore::sum_of_top_2}) {
    one_expert_a_group.group_score = score;
    check(normal(2 * 64, 11), 64, {}, one_expert_a_group);
  }
}

TEST_P(GatingTopKTest, TiesNaNAndInfinitiesGiveDistinctIdsAndDefinedWeights) {
  constexpr std::int64_t experts = 20;
  std::vector<double> logits;
  for (const std::vector<double>& row : hard_logits(experts)) logits.insert(logits.end(), row.begin(), row.end());
  for (const ScoreFunction function : {ScoreFunction::softmax, ScoreFunction::sigmoid})
    for (const ScoreOrder order : {ScoreOrder::before_top_k, ScoreOrder::after_top_k})
      for (const std::int32_t groups : {1, 5})
        for (const GroupScore score : {GroupScore::max, GroupScore::sum_of_top_2})
          check(logits, experts, {}, {4, function, order, groups, (groups + 1) / 2, score, true, 0, 1});
}

TEST_P(GatingTopKTest, SqrtSoftplusOfHardLogits) {
  std::vector<double> logits = {100, -100, 1e30, -1e30, 0, -0.0, 88, -88};  // must not overflow or cancel
  for (const std::vector<double>& row : hard_logits(8))
    if (std::find(row.begin(), row.end(), INFINITY) == row.end()) logits.insert(logits.end(), row.begin(), row.end());
  for (const ScoreOrder order : {ScoreOrder::before_top_k, ScoreOrder::after_top_k})
    check(logits, 8, {}, {4, ScoreFunction::sqrtsoftplus, order, 1, 1, GroupScore::max, true, 0, 1});
}

TEST_P(GatingTopKTest, ExpertsOfOtherGroupsLoseEvenToNegativeScores) {
  // Every biased score is negative. If excluded experts counted as 0, they would be chosen.
  std::vector<double> bias(16, -3);
  for (std::size_t e = 0; e < bias.size(); ++e) bias[e] -= static_cast<double>(e) / 10;
  check(normal(6 * 16, 12), 16, bias,
        {4, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 4, 1, GroupScore::max, true, 0, 1});
}

RouterSpec sparse_mixer(std::int32_t top_k, float jitter) {
  RouterSpec spec{top_k, ScoreFunction::sparse_mixer, ScoreOrder::after_top_k};
  spec.mixer_jitter = jitter;
  return spec;
}

TEST_P(GatingTopKTest, SparseMixersShareAmongTheNear) {
  check(normal(33 * 16, 21), 16, {}, sparse_mixer(2, 0.01F));
  check(normal(33 * 16, 22), 16, {}, sparse_mixer(2, 0.1F));
  check(normal(5 * 300, 23), 300, {}, sparse_mixer(7, 0.5F));
  check(normal(3 * 9, 24), 9, {}, sparse_mixer(9, 1.0F));
  // Logits that are all negative, all equal, and around 0, where the threshold is relative to the larger of both.
  check({-1, -1.01, -1.03, -4, 2, 2, 2, 2, 0, -0.0, 1e-30, -1e-30}, 4, {}, sparse_mixer(3, 0.01F));
  std::vector<double> logits;
  for (const std::vector<double>& row : hard_logits(20)) logits.insert(logits.end(), row.begin(), row.end());
  check(logits, 20, {}, sparse_mixer(4, 0.05F));
}

TEST_P(GatingTopKTest, WeightsOfAMixerAreNotOne) {
  // By hand: expert 1 is within 2 * 0.1 of expert 0, expert 2 of neither.
  const GuardedTensor logits = upload(device(), DType::f32, {1, 3}, std::vector<double>{2, 1.9, 1}),
                      ids(device(), DType::i32, {1, 2}), weights(device(), DType::f32, {1, 2});
  gating_top_k::enqueue(device().stream, {logits, {}, ids, weights}, sparse_mixer(2, 0.1F));
  EXPECT_EQ(ids.read<std::int32_t>(), (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(weights.values()[0], 1 / (1 + std::exp(-0.1)), 1e-6);
  EXPECT_NEAR(weights.values()[1], 1, 1e-6);
}

TEST_P(GatingTopKTest, RenormalisingDividesByNoLessThanTheMinimum) {
  RouterSpec ernie{2};
  ernie.renormalise = true;
  ernie.renormalise_minimum = 1e-3F;
  // In the first row the bias chooses experts that have almost no weight.
  check({9, 0, 0, 0, 1, 1, 1, 1}, 4, {0, 1, 1, 0}, ernie);
}

TEST_P(GatingTopKTest, NegativeSumsAreNotDividedBy) {
  RouterSpec raw{2, ScoreFunction::none};
  raw.renormalise = true;
  check({-1, -2, -4, -8}, 4, {}, raw);
  check({1, 2, -4, 8}, 4, {}, raw);
}

TEST_P(GatingTopKTest, RenormalisesSumsFarFromOne) {
  RouterSpec scores{3, ScoreFunction::sigmoid};
  scores.renormalise = true;
  check({-60, -61, -62, -63, -80, -81, -80.5, -82, 1, -70, -71, 0}, 4, {}, scores);
  scores.score = ScoreFunction::none;
  check({3e25, 1e25, 2e25, 0, 7e-25, 5e-25, 6e-25, 0, 3e38, 1, 2, 0}, 4, {}, scores);
  if (device().caps().nv_compute_capability == 0) return;  // others may flush subnormals to 0
  check({3e-40, 1e-40, 2e-40, 0}, 4, {}, scores);
}

TEST_P(GatingTopKTest, NothingIsLeftOfSharesOfAnInfiniteSum) {
  RouterSpec raw{2, ScoreFunction::none};
  raw.renormalise = true;
  const GuardedTensor logits = upload(device(), DType::f32, {1, 3}, std::vector<double>{3e38, 2e38, 1}),
                      ids(device(), DType::i32, {1, 2}), weights(device(), DType::f32, {1, 2});
  gating_top_k::enqueue(device().stream, {logits, {}, ids, weights}, raw);
  EXPECT_EQ(weights.values(), (std::vector<double>{0, 0}));
}

TEST_P(GatingTopKTest, FusedSharedExpertsFollowTheChosen) {
  RouterSpec spec = deepseek_v3;
  for (const std::int32_t shared : {1, 3, 40}) {
    spec.fused_shared_experts = shared;
    spec.top_k = 8 + shared;
    for (const DType dtype : {DType::f32, DType::bf16}) check(normal(5 * 256, 2), 256, normal(256, 3), spec, dtype);
  }
  RouterSpec one{2};  // chooses one expert, and adds one shared expert
  one.fused_shared_experts = 1;
  check({-3}, 1, {}, one);
}

TEST_P(GatingTopKTest, RandomSpecs) {
  std::mt19937_64 engine(13);
  const auto below = [&](std::int32_t n) {
    return static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(n));
  };
  for (int i = 0; i < 40; ++i) {
    RouterSpec spec;
    spec.groups = 1 + below(9);
    const std::int32_t experts = spec.groups * (1 + below(40));
    spec.kept_groups = 1 + below(spec.groups);
    spec.top_k = 1 + below(experts / spec.groups * spec.kept_groups);
    spec.score = static_cast<ScoreFunction>(below(4));
    spec.order = static_cast<ScoreOrder>(below(2));
    spec.group_score = static_cast<GroupScore>(below(2));
    spec.renormalise = below(2) == 1 && spec.score != ScoreFunction::none;  // raw scores may cancel to a sum near 0
    spec.scaling_factor = 0.5F + static_cast<float>(below(4));
    spec.renormalise_minimum = below(2) == 1 ? 0.125F : 0.0F;
    const auto count = static_cast<std::size_t>(experts);
    check(normal(count * 3, engine()), experts, below(2) == 1 ? normal(count, engine()) : std::vector<double>(), spec);
  }
}

TEST_P(GatingTopKTest, EveryStorageTypeComputesInF32) {
  RouterSpec after{20, ScoreFunction::softmax, ScoreOrder::after_top_k};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // Values on a grid that both types hold: their scores differ by more than f32's rounding, or are ties.
    std::vector<double> logits = normal(6 * 64, 15), bias = normal(64, 16);
    for (double& value : logits) value = std::round(value * 16) / 16;
    for (double& value : bias) value = std::round(value * 16) / 16;
    RouterSpec spec = deepseek_v3;
    check(logits, 64, bias, spec, dtype);
    check(logits, 64, {}, after, dtype);
  }
}

TEST_P(GatingTopKTest, FinishedTokensGetNoExpertAndScoresOfAllAreGiven) {
  constexpr std::int64_t tokens = 3, experts = 37;
  const std::vector<double> stored = rounded(DType::f32, normal(tokens * experts, 17));
  const GuardedTensor logits = upload(device(), DType::f32, {tokens, experts}, stored),
                      finished(device(), DType::u8, {tokens}, std::vector<std::uint8_t>{0, 1, 0});
  RouterSpec everyone{experts};  // for all experts the oracle's weights are the scores
  for (const std::int32_t lanes : lane_choices) {
    const GuardedTensor ids(device(), DType::i32, {tokens, 2}), weights(device(), DType::f32, {tokens, 2}),
        scores(device(), DType::f32, {tokens, experts});
    gating_top_k::enqueue(device().stream, {logits, {}, ids, weights, scores, finished}, {2}, {lanes});
    const std::vector<std::int32_t> all_ids = ids.read<std::int32_t>();
    const std::vector<double> all_scores = scores.values(), all_weights = weights.values();
    for (std::int64_t t = 0; t < tokens; ++t) {
      const oracle::TopK expected =
          oracle::gating_top_k({stored.begin() + t * experts, stored.begin() + (t + 1) * experts}, {}, everyone);
      std::vector<double> expected_scores(experts);
      for (std::size_t k = 0; k < experts; ++k)
        expected_scores[static_cast<std::size_t>(expected.ids[k])] = expected.weights[k];
      EXPECT_LE(
          relative_error({all_scores.begin() + t * experts, all_scores.begin() + (t + 1) * experts}, expected_scores),
          2e-6);
      for (std::size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(all_ids[static_cast<std::size_t>(t) * 2 + k], t == 1 ? experts : expected.ids[k]);
        EXPECT_NEAR(all_weights[static_cast<std::size_t>(t) * 2 + k], expected.weights[k], 2e-6);
      }
    }
  }
}

TEST_P(GatingTopKTest, RowsMayBeStrided) {
  const GuardedTensor wide = upload(device(), DType::f32, {3, 12}, normal(36, 14));
  TensorView logits = wide.view();
  logits.shape[1] = 8;
  const GuardedTensor ids(device(), DType::i32, {3, 2}), weights(device(), DType::f32, {3, 2});
  gating_top_k::enqueue(device().stream, {logits, {}, ids, weights}, {2});
  const std::vector<double> stored = rounded(DType::f32, normal(36, 14));
  std::vector<std::int32_t> expected;
  for (auto row = stored.begin(); row != stored.end(); row += 12) {
    const oracle::TopK chosen = oracle::gating_top_k({row, row + 8}, {}, {2});
    expected.insert(expected.end(), chosen.ids.begin(), chosen.ids.end());
  }
  EXPECT_EQ(ids.read<std::int32_t>(), expected);
}

/// A score in double precision, for all functions but softmax.
double score_of(ScoreFunction function, double logit) {
  if (function == ScoreFunction::sigmoid) return 1 / (1 + std::exp(-logit));
  return function == ScoreFunction::sqrtsoftplus ? std::sqrt(std::log1p(std::exp(logit))) : logit;
}

TEST_P(GatingTopKTest, WeighsTheExpertsOfATable) {
  struct Case {
    std::int64_t experts;
    std::int32_t top_k;
    ScoreFunction function;
    ScoreOrder order;
    DType id_dtype;
  };
  constexpr auto before = ScoreOrder::before_top_k, after = ScoreOrder::after_top_k;
  for (const Case& c : {Case{20, 3, ScoreFunction::softmax, before, DType::i32},
                        Case{300, 17, ScoreFunction::softmax, after, DType::i64},
                        Case{20, 3, ScoreFunction::sigmoid, before, DType::i64},
                        Case{7, 7, ScoreFunction::sqrtsoftplus, after, DType::i32},
                        Case{130, 5, ScoreFunction::none, before, DType::i32}}) {
    constexpr std::int64_t tokens = 6, vocabulary = 9;
    RouterSpec spec{c.top_k, c.function, c.order};
    spec.renormalise = c.function != ScoreFunction::none;
    spec.scaling_factor = 1.5F;
    const std::vector<double> values = rounded(DType::f32, normal(static_cast<std::size_t>(tokens * c.experts), 31));
    std::vector<double> rows;
    for (std::int64_t i = 0; i < vocabulary * c.top_k; ++i)
      rows.push_back(static_cast<double>((i * 5 + i / c.top_k) % c.experts));
    rows[static_cast<std::size_t>(c.top_k)] = -1;                                  // token id 1: no expert
    rows[static_cast<std::size_t>(c.top_k) + 1] = static_cast<double>(c.experts);  // the same
    const std::vector<double> ids = {0, 1, 8, 4, 4, 7}, finished = {0, 0, 0, 0, 1, 0};
    const GuardedTensor logits = upload(device(), DType::f32, {tokens, c.experts}, values),
                        table = upload(device(), DType::i32, {vocabulary, c.top_k}, rows),
                        token_ids = upload(device(), c.id_dtype, {tokens}, ids),
                        done = upload(device(), DType::u8, {tokens}, finished);
    const GuardedTensor chosen(device(), DType::i32, {tokens, c.top_k}),
        weights(device(), DType::f32, {tokens, c.top_k});
    gating_top_k::Args args{logits, {}, chosen, weights, {}, done, -1};
    args.table = {table, token_ids};
    gating_top_k::enqueue(device().stream, args, spec);
    std::vector<std::int32_t> expected_ids;
    std::vector<double> expected;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const double* const row = values.data() + t * static_cast<std::size_t>(c.experts);
      std::vector<double> scores;
      double all = 0, total = 0;
      for (std::int64_t e = 0; e < c.experts; ++e) all += std::exp(row[e]);
      for (std::int32_t k = 0; k < c.top_k; ++k) {
        const double id =
            rows[static_cast<std::size_t>(ids[t]) * static_cast<std::size_t>(c.top_k) + static_cast<std::size_t>(k)];
        const bool exists = id >= 0 && id < static_cast<double>(c.experts);
        expected_ids.push_back(finished[t] != 0 || !exists ? -1 : static_cast<std::int32_t>(id));
        const double logit = exists ? row[static_cast<std::size_t>(id)] : 0;
        const double score = c.function == ScoreFunction::softmax ? std::exp(logit) : score_of(c.function, logit);
        scores.push_back(exists ? score : 0);
        total += scores.back();
      }
      const double divisor = spec.renormalise ? total : c.function == ScoreFunction::softmax ? all : 1;
      for (const double score : scores) expected.push_back(1.5 * score / divisor);
    }
    EXPECT_EQ(chosen.read<std::int32_t>(), expected_ids) << c.experts;
    EXPECT_LE(relative_error(weights.values(), expected), 1e-5) << c.experts;
  }
}

TEST_P(GatingTopKTest, TokensThatNoTableHasAreAFault) {
  const GuardedTensor logits = upload(device(), DType::f32, {3, 4}, normal(12, 32)),
                      table = upload(device(), DType::i32, {2, 2}, std::vector<double>{0, 1, 2, 3}),
                      fault = upload(device(), DType::i32, {4}, std::vector<double>(4));
  const GuardedTensor ids(device(), DType::i32, {3, 2}), weights(device(), DType::f32, {3, 2});
  const GuardedTensor token_ids = upload(device(), DType::i64, {3}, std::vector<double>{1, -5, 0});
  gating_top_k::Args args{logits, {}, ids, weights};
  args.table = {table, token_ids};
  args.fault = fault;
  gating_top_k::enqueue(device().stream, args, {2});
  EXPECT_EQ(ids.read<std::int32_t>(), (std::vector<std::int32_t>{2, 3, -1, -1, 0, 1}));
  EXPECT_EQ(weights.values()[2], 0);
  EXPECT_EQ(fault.read<std::int32_t>(),
            (std::vector<std::int32_t>{static_cast<std::int32_t>(FaultCode::index_out_of_range), 1, -5, 0}));
  args.table.experts.shape[1] = 1;
  EXPECT_THAT(gating_top_k::reject(args, {2}, {}, device().record()),
              testing::HasSubstr("table: expected contiguous i32[V, 2]"));
  args.table = {table, ids};
  EXPECT_THAT(gating_top_k::reject(args, {2}, {}, device().record()),
              testing::HasSubstr("token_ids: expected i32[3] or i64[3], got i32[3, 2]"));
}

TEST_P(GatingTopKTest, RejectsWhatCannotBeRouted) {
  const GuardedTensor logits(device(), DType::f32, {3, 8}), ids(device(), DType::i32, {3, 2}),
      weights(device(), DType::f32, {3, 2});
  const GuardedTensor bias(device(), DType::f32, {7});
  const auto reason = [&](const gating_top_k::Args& args, const RouterSpec& spec) {
    return gating_top_k::reject(args, spec, {}, device().record());
  };
  const gating_top_k::Args args{logits, {}, ids, weights};
  const auto with_groups = [](std::int32_t groups, std::int32_t kept) {
    RouterSpec spec{2};
    spec.groups = groups;
    spec.kept_groups = kept;
    return spec;
  };
  EXPECT_EQ(reason(args, {2}), "");
  EXPECT_THAT(reason(args, {9}), testing::HasSubstr("9 of 8 experts"));
  EXPECT_THAT(reason(args, {0}), testing::HasSubstr("0 of 8 experts"));
  EXPECT_THAT(reason(args, {3}), testing::HasSubstr("expected i32[3, 3], got i32[3, 2]"));
  EXPECT_THAT(reason(args, with_groups(3, 1)), testing::HasSubstr("8 experts do not form 3 equal groups"));
  EXPECT_THAT(reason(args, with_groups(4, 5)), testing::HasSubstr("5 of 4 groups"));
  EXPECT_THAT(reason(args, with_groups(8, 1)),
              testing::HasSubstr("2 experts cannot be chosen from 1 of 8 groups of 1"));
  EXPECT_THAT(reason({logits, bias, ids, weights}, {2}), testing::HasSubstr("expected float [8], got f32[7]"));
  EXPECT_THAT(reason({ids, {}, ids, weights}, {2}), testing::HasSubstr("expected float [T, E], got i32[3, 2]"));
  EXPECT_THAT(reason({logits, {}, ids, weights, weights}, {2}),
              testing::HasSubstr("expected f32[3, 8], got f32[3, 2]"));
  EXPECT_THAT(reason({logits, {}, ids, weights, logits}, {2, ScoreFunction::softmax, ScoreOrder::after_top_k}),
              testing::HasSubstr("only the chosen experts have one"));
  EXPECT_THAT(reason({logits, {}, ids, weights, {}, bias}, {2}), testing::HasSubstr("expected u8[3] or bool[3]"));
  RouterSpec on_input{2};
  on_input.weight_on_input = true;
  EXPECT_THAT(reason(args, on_input), testing::HasSubstr("needs top_k 1, got 2"));
  EXPECT_THAT(reason(args, {2, ScoreFunction::sparse_mixer}), testing::HasSubstr("needs ScoreOrder::after_top_k"));
  EXPECT_THAT(reason({logits, GuardedTensor(device(), DType::f32, {8}), ids, weights}, sparse_mixer(2, 0.1F)),
              testing::HasSubstr("a sparse mixer chooses by the logits alone"));
  EXPECT_THROW(gating_top_k::enqueue(device().stream, args, {9}), Error);
}

}  // namespace
}  // namespace moecl::test
