#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <cmath>

#include "host/npu/describe_gating.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {
namespace {

/// The oracle's outputs for the operators on [N, E] scores.
struct Routed {
  Expected y, ids, scores;
};

class NpuGatingTest : public OnEveryDevice {
 protected:
  /// Values on a grid: equal values are frequent, and different values stay different under every score function.
  static std::vector<double> grid(std::int64_t count, std::mt19937_64& engine) {
    std::vector<double> values = normal(static_cast<std::size_t>(count), engine());
    for (double& value : values) value = std::round(value * 8) / 8;
    return values;
  }

  static Routed route(const std::vector<double>& x, std::int64_t experts, const std::vector<double>& bias,
                      const RouterSpec& spec, DType dtype, const std::vector<std::uint8_t>& finished = {}) {
    const double rounding = dtype == DType::bf16 ? 0x1p-8 * 1.01 : dtype == DType::f16 ? 0x1p-11 * 1.01 : 3e-6;
    Routed out{{{}, {}, 1e-7, rounding}, {}, {{}, {}, 1e-30, 3e-6}};
    RouterSpec all = spec;  // every expert chosen: the weights are the scores
    all.top_k = static_cast<std::int32_t>(experts);
    all.groups = all.kept_groups = 1;
    all.renormalise = false;
    all.scaling_factor = 1;
    for (auto row = x.begin(); row != x.end(); row += experts) {
      const std::vector<double> logits(row, row + experts);
      const oracle::TopK chosen = oracle::gating_top_k(logits, bias, spec),
                         scores = oracle::gating_top_k(logits, {}, all);
      const auto token = static_cast<std::size_t>(row - x.begin()) / static_cast<std::size_t>(experts);
      const bool is_finished = !finished.empty() && finished[token] != 0;
      for (const std::int32_t id : chosen.ids)
        out.ids.values.push_back(is_finished ? static_cast<double>(experts) : id);
      out.y.values.insert(out.y.values.end(), chosen.weights.begin(), chosen.weights.end());
      std::vector<double> by_expert(static_cast<std::size_t>(experts));
      for (std::size_t e = 0; e < by_expert.size(); ++e)
        by_expert[static_cast<std::size_t>(scores.ids[e])] = scores.weights[e];
      out.scores.values.insert(out.scores.values.end(), by_expert.begin(), by_expert.end());
    }
    return out;
  }
};
MOECL_ON_EVERY_DEVICE(NpuGatingTest);

const std::vector<DType> dtypes = {DType::f32, DType::f16, DType::bf16};

TEST_P(NpuGatingTest, MoeGatingTopKAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const DType dtype = one_of(engine, dtypes);
    npu::MoeGatingTopKArgs args;
    args.group_count = one_of<std::int64_t>(engine, {1, 1, 2, 4, 5});
    const std::int64_t size = between(engine, args.group_count == 1 ? 1 : 3, args.group_count == 1 ? 40 : 9);
    const std::int64_t experts = args.group_count * size, tokens = between(engine, 0, 4);
    args.k_group = between(engine, 1, args.group_count);
    args.k = between(engine, 1, args.k_group * size);
    args.group_select_mode = between(engine, 0, 1);
    args.norm_type = between(engine, 0, 1);
    args.renorm = between(engine, 0, 1);
    args.out_flag = between(engine, 0, 1) == 1;
    args.routed_scaling_factor = one_of<double>(engine, {1, 2.5});
    args.eps = one_of<double>(engine, {1e-20, 0.125});
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << name(dtype) << "[" << tokens << ", " << experts
                                    << "], k " << args.k << ", groups " << args.k_group << " of " << args.group_count
                                    << ", norm_type " << args.norm_type);
    const std::vector<double> x = grid(tokens * experts, engine),
                              bias = between(engine, 0, 1) == 1 ? grid(experts, engine) : std::vector<double>();
    const GuardedTensor device_x = upload(device(), dtype, {tokens, experts}, x),
                        device_bias = upload(device(), dtype, {static_cast<std::int64_t>(bias.size())}, bias);
    args.x = device_x;
    if (!bias.empty()) args.bias = device_bias;
    RouterSpec spec{static_cast<std::int32_t>(args.k)};
    spec.score = args.norm_type == 1 ? ScoreFunction::sigmoid : ScoreFunction::softmax;
    spec.groups = static_cast<std::int32_t>(args.group_count);
    spec.kept_groups = static_cast<std::int32_t>(args.k_group);
    spec.group_score = args.group_select_mode == 1 ? GroupScore::sum_of_top_2 : GroupScore::max;
    spec.renormalise = args.norm_type == 1 || args.renorm == 1;
    spec.renormalise_epsilon = static_cast<float>(args.eps);
    spec.scaling_factor = static_cast<float>(args.routed_scaling_factor);
    const Routed expected = route(x, experts, bias, spec, dtype);
    expect_outputs(device(), args, {expected.y, expected.ids, args.out_flag ? expected.scores : Expected{}});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuGatingTest, SoftmaxFormsAgreeWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const DType dtype = one_of(engine, dtypes);
    const std::int64_t experts = between(engine, 1, 70), a = between(engine, 0, 3), b = between(engine, 1, 3);
    const std::int64_t k = between(engine, 1, experts), tokens = a * b;
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << name(dtype) << "[" << a << ", " << b << ", " << experts
                                    << "], k " << k);
    std::vector<double> x = grid(tokens * experts, engine);
    if (tokens > 1) std::fill_n(x.begin(), experts, std::nan(""));  // chooses experts 0 to k - 1 with weight 0
    const GuardedTensor device_x = upload(device(), dtype, {a, b, experts}, x);
    std::vector<std::uint8_t> finished;
    if (between(engine, 0, 1) == 1)
      for (std::int64_t t = 0; t < tokens; ++t) finished.push_back(static_cast<std::uint8_t>(between(engine, 0, 1)));
    const bool any = !finished.empty();
    const GuardedTensor flags(device(), DType::boolean, {any ? a : 0, any ? b : 0}, finished);

    RouterSpec spec{static_cast<std::int32_t>(k)};
    const Routed expected = route(x, experts, {}, spec, dtype, finished);
    Expected columns;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < k; ++j) columns.values.push_back(static_cast<double>(j * tokens + t));
    npu::MoeGatingTopKSoftmaxArgs v1;
    v1.x = device_x;
    v1.k = k;
    if (any) v1.finished = flags;
    expect_outputs(device(), v1, {expected.y, expected.ids, columns});
    if (HasFatalFailure()) return;

    npu::MoeGatingTopKSoftmaxV2Args v2;
    v2.x = device_x;
    v2.k = k;
    if (any) v2.finished = flags;
    v2.renorm = between(engine, 0, 1);
    v2.output_softmax = between(engine, 0, 1) == 1;
    if (v2.renorm == 1) spec.order = ScoreOrder::after_top_k;
    const Routed expected_v2 = route(x, experts, {}, spec, dtype, finished);
    Expected scores = v2.output_softmax && v2.renorm == 0 ? expected_v2.scores : Expected{};
    if (tokens > 1 && !scores.values.empty()) std::fill_n(scores.values.begin(), experts, std::nan(""));
    expect_outputs(device(), v2, {expected_v2.y, expected_v2.ids, scores});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuGatingTest, RefusesWhatCannotBeRouted) {
  const GuardedTensor x(device(), DType::f32, {3, 8}), wide(device(), DType::f32, {1, 2049}),
      ints(device(), DType::i32, {3, 8}), flags(device(), DType::boolean, {2});
  const auto refusal = [&](const auto& change) {
    npu::MoeGatingTopKArgs args;
    args.x = x;
    args.k = 2;
    change(args);
    return refusal_of(args, device());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([&](auto& args) { args.x = ints; }), testing::HasSubstr("got i32[3, 8]"));
  EXPECT_THAT(refusal([&](auto& args) { args.x = wide; }), testing::HasSubstr("2049 experts are outside [1, 2048]"));
  EXPECT_THAT(refusal([&](auto& args) { args.k = 9; }), testing::HasSubstr("9 of 8 experts"));
  EXPECT_THAT(refusal([&](auto& args) { args.norm_type = 2; }), testing::HasSubstr("not supported"));
  EXPECT_THAT(refusal([&](auto& args) { args.renorm = 2; }), testing::HasSubstr("2 is neither 0 nor 1"));
  EXPECT_THAT(refusal([&](auto& args) { args.group_count = 3; }), testing::HasSubstr("do not form 3 equal groups"));
  EXPECT_THAT(refusal([&](auto& args) { args.group_count = 4; }), testing::HasSubstr("more than 2 experts"));
  EXPECT_THAT(refusal([&](auto& args) { args.k_group = 2; }), testing::HasSubstr("2 of 1 groups cannot be kept"));
  EXPECT_THAT(refusal([&](auto& args) { args.bias = flags; }), testing::HasSubstr("expected float [8]"));
  npu::MoeGatingTopKSoftmaxArgs softmax;
  softmax.x = x;
  softmax.finished = flags;
  EXPECT_THAT(
      [&] {
        infer(softmax);
        npu::workspace_bytes(softmax, device().record());
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("without its last dimension, got bool[2]")));
}

}  // namespace
}  // namespace moecl::test
