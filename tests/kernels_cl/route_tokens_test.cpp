#include <moecl/error.hpp>
#include <moecl/route_tokens.hpp>

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"
#include "tests/oracle/expert_sort.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

/// The outputs of one call.
struct Routed {
  Routed(const TestDevice& device, std::int64_t tokens, std::int64_t experts, std::int64_t top_k, std::int64_t rows)
      : ids(device, DType::i32, {tokens, top_k}),
        weights(device, DType::f32, {tokens, top_k}),
        row_ends(device, DType::i32, {experts}),
        sorted_slots(device, DType::i32, {rows}, Ints(static_cast<std::size_t>(rows), -1)),
        slot_rows(device, DType::i32, {tokens * top_k}),
        fault(device, DType::i32, {4}, Ints(4)) {}

  route_tokens::Args args(const TensorView& logits, const TensorView& bias, const TensorView& finished,
                          std::int64_t rows_per_expert) const {
    route_tokens::Args args;
    args.gating = {logits, bias, ids, weights, {}, finished, -1};
    args.sort.ids = ids;
    args.sort.end_expert = args.sort.total_experts = static_cast<std::int32_t>(logits.shape[1]);
    args.sort.rows_per_expert = rows_per_expert;
    args.sort.row_ends = row_ends;
    args.sort.sorted_slots = sorted_slots;
    args.sort.slot_rows = slot_rows;
    args.sort.fault = fault;
    return args;
  }

  GuardedTensor ids, weights, row_ends, sorted_slots, slot_rows, fault;
};

class RouteTokensTest : public OnEveryDevice {
 protected:
  /// Against the oracles, and bit for bit against the two operators.
  void check(const std::vector<double>& given, std::int64_t experts, const std::vector<double>& given_bias,
             const RouterSpec& spec, std::int64_t rows_per_expert = 0, const std::vector<std::uint8_t>& done = {}) {
    const std::vector<double> logits = rounded(DType::f32, given), bias = rounded(DType::f32, given_bias);
    const auto tokens = static_cast<std::int64_t>(logits.size()) / experts;
    const std::int64_t rows = rows_per_expert == 0 ? tokens * spec.top_k : experts * rows_per_expert;
    const GuardedTensor x = upload(device(), DType::f32, {tokens, experts}, logits),
                        b = upload(device(), DType::f32, {bias.empty() ? 0 : experts}, bias),
                        finished(device(), DType::u8, {static_cast<std::int64_t>(done.size())}, done);
    const TensorView no_tensor;
    const TensorView& bias_view = bias.empty() ? no_tensor : b.view();
    const TensorView& finished_view = done.empty() ? no_tensor : finished.view();

    Ints ids;
    std::vector<double> weights;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const oracle::TopK expected =
          oracle::gating_top_k({logits.begin() + t * experts, logits.begin() + (t + 1) * experts}, bias, spec);
      const bool is_done = !done.empty() && done[static_cast<std::size_t>(t)] != 0;
      for (const std::int32_t id : expected.ids) ids.push_back(is_done ? -1 : id);
      weights.insert(weights.end(), expected.weights.begin(), expected.weights.end());
    }
    const auto count = static_cast<std::int32_t>(experts);
    oracle::SortedSlots sort = oracle::expert_sort(ids, 0, count, count, rows_per_expert);
    sort.sorted_slots.resize(static_cast<std::size_t>(rows), -1);

    const Routed apart(device(), tokens, experts, spec.top_k, rows);
    const route_tokens::Args steps = apart.args(x, bias_view, finished_view, rows_per_expert);
    SCOPED_TRACE(testing::Message() << "T = " << tokens << ", E = " << experts << ", K = " << spec.top_k);
    gating_top_k::enqueue(device().stream, steps.gating, spec);
    expert_sort::enqueue(device().stream, steps.sort);
    const Routed routed(device(), tokens, experts, spec.top_k, rows);
    const route_tokens::Args args = routed.args(x, bias_view, finished_view, rows_per_expert);
    const std::uint64_t before = device().context->counters().kernels_launched;
    route_tokens::enqueue(device().stream, args, spec);
    const bool one = route_tokens::why_apart(args, spec, device().record()).empty();
    EXPECT_EQ(device().context->counters().kernels_launched - before, one ? 1U : 2U);
    EXPECT_EQ(one, tokens <= 16);
    EXPECT_EQ(routed.ids.read<std::int32_t>(), ids);
    EXPECT_LE(relative_error(routed.weights.values(), weights), 2e-6);
    EXPECT_EQ(routed.weights.read<std::uint32_t>(), apart.weights.read<std::uint32_t>());
    EXPECT_EQ(routed.row_ends.read<std::int32_t>(), sort.row_ends);
    EXPECT_EQ(routed.sorted_slots.read<std::int32_t>(), sort.sorted_slots);
    EXPECT_EQ(routed.slot_rows.read<std::int32_t>(), sort.slot_rows);
    EXPECT_EQ(routed.fault.read<std::int32_t>(), (Ints{sort.fault_code, sort.fault_slot, sort.fault_value, 0}));

    const route_tokens::Plan plan = route_tokens::plan(args, spec, device().record());
    EXPECT_THAT((one ? plan.together : plan.gating).describe(), testing::HasSubstr("-DLANES="));
    const Routed elsewhere(device(), tokens, experts, spec.top_k, rows);
    const route_tokens::Args others = elsewhere.args(x, bias_view, finished_view, rows_per_expert);
    route_tokens::enqueue(device().stream, plan, others, spec);
    EXPECT_EQ(elsewhere.weights.read<std::uint32_t>(), routed.weights.read<std::uint32_t>());
    EXPECT_EQ(elsewhere.sorted_slots.read<std::int32_t>(), routed.sorted_slots.read<std::int32_t>());
  }
};
MOECL_ON_EVERY_DEVICE(RouteTokensTest);

TEST_P(RouteTokensTest, FewTokensTakeOneLaunchAndMoreTwo) {
  RouterSpec qwen3{8};
  qwen3.renormalise = true;
  for (const std::size_t tokens : {1, 2, 5, 16, 17}) check(normal(tokens * 128, tokens), 128, {}, qwen3);
  check({1, 2, 3}, 1, {}, {1});
  check(normal(3 * 7, 7), 7, {}, {7});
}

TEST_P(RouteTokensTest, EveryRuleOfARouter) {
  const RouterSpec deepseek_v3{
      8, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 8, 4, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F};
  check(normal(3 * 256, 2), 256, normal(256, 3), deepseek_v3);
  check(normal(5 * 60, 4), 60, {}, {4, ScoreFunction::softmax, ScoreOrder::after_top_k});
  check(normal(4 * 16, 5), 16, {}, {1, ScoreFunction::sigmoid, ScoreOrder::after_top_k});
  RouterSpec mixer{2, ScoreFunction::sparse_mixer, ScoreOrder::after_top_k};
  mixer.mixer_jitter = 0.1F;
  check(normal(7 * 16, 6), 16, {}, mixer);
  std::vector<double> hard;
  for (const std::vector<double>& row : hard_logits(20))
    if (hard.size() < std::size_t{16 * 20}) hard.insert(hard.end(), row.begin(), row.end());
  check(hard, 20, {}, {4, ScoreFunction::softmax, ScoreOrder::before_top_k, 5, 3, GroupScore::max, true, 0, 1});
}

TEST_P(RouteTokensTest, FinishedTokensChooseNobodyAndFullExpertsAreReported) {
  check(normal(5 * 12, 8), 12, {}, {3}, 0, {0, 1, 0, 0, 1});
  check(normal(2 * 12, 9), 12, {}, {3}, 0, {1, 1});
  check(normal(4 * 6, 10), 6, {}, {3}, 4);
  std::vector<double> same;  // all choose experts 0 and 1, which take one row each
  for (int t = 0; t < 4; ++t) same.insert(same.end(), {3, 2, 1, 0});
  check(same, 4, {}, {2}, 1);
}

TEST_P(RouteTokensTest, TokensBecomeCodesInTheSameLaunch) {
  constexpr std::int64_t tokens = 5, experts = 12, hidden = 84;
  const GuardedTensor logits = upload(device(), DType::f32, {tokens, experts}, normal(tokens * experts, 1)),
                      x = upload(device(), DType::bf16, {tokens, hidden}, normal(tokens * hidden, 2));
  for (const auto& [format, group] : {std::pair{CodeType::i8, std::int64_t{0}}, {CodeType::f8_e4m3, 32}}) {
    const Routed routed(device(), tokens, experts, 2, tokens * 2);
    const DType codes = format == CodeType::i8 ? DType::i8 : DType::f8_e4m3;
    const std::int64_t groups = group == 0 ? 1 : (hidden + group - 1) / group;
    const GuardedTensor q(device(), codes, {tokens, hidden}), scale(device(), DType::f32, {tokens, groups}),
        q_apart(device(), codes, {tokens, hidden}), scale_apart(device(), DType::f32, {tokens, groups});
    route_tokens::Args args = routed.args(logits, {}, {}, 0);
    args.tokens.x = x;
    args.tokens.format = format;
    args.tokens.group = group;
    args.tokens.q = q;
    args.tokens.scale = scale;
    EXPECT_EQ(route_tokens::why_apart(args, {2}, device().record()), "");
    route_tokens::enqueue(device().stream, args, {2});
    quantize_groups::Args apart = args.tokens;
    apart.q = q_apart;
    apart.scale = scale_apart;
    quantize_groups::enqueue(device().stream, apart);
    EXPECT_EQ(q.read<std::uint8_t>(), q_apart.read<std::uint8_t>());
    EXPECT_EQ(scale.read<std::uint32_t>(), scale_apart.read<std::uint32_t>());
    const Ints ids = routed.ids.read<std::int32_t>();
    EXPECT_EQ(routed.slot_rows.read<std::int32_t>(), oracle::expert_sort(ids, 0, 12, 12, 0).slot_rows);
    args.tokens.group = -1;
    EXPECT_THAT(route_tokens::reject(args, {2}, device().record()), testing::HasSubstr("group: -1 is negative"));
  }
}

TEST_P(RouteTokensTest, TooManyScoresForTheLocalMemoryTakeTwoLaunches) {
  Device gpu = device().record();
  gpu.caps.type = DeviceType::gpu;
  gpu.caps.max_work_group_size = 1024;
  gpu.caps.local_mem_bytes = 48 << 10;
  const Routed routed(device(), 16, 1024, 2, 32);
  const GuardedTensor x(device(), DType::f32, {16, 1024});
  const route_tokens::Args args = routed.args(x, {}, {}, 0);
  EXPECT_THAT(route_tokens::why_apart(args, {2}, gpu), testing::HasSubstr("bytes of local memory are needed"));
  gpu.caps.max_work_group_size = 256;
  EXPECT_THAT(route_tokens::why_apart(args, {2}, gpu), testing::HasSubstr("512 lanes are more"));
}

TEST_P(RouteTokensTest, RejectsWhatTheOperatorsRejectAndOtherIds) {
  const Routed routed(device(), 3, 8, 2, 6), other(device(), 3, 8, 2, 6);
  const GuardedTensor x(device(), DType::f32, {3, 8});
  route_tokens::Args args = routed.args(x, {}, {}, 0);
  const auto reason = [&] { return route_tokens::reject(args, {2}, device().record()); };
  EXPECT_EQ(reason(), "");
  args.sort.ids = other.ids;
  EXPECT_THAT(reason(), testing::HasSubstr("not those that are chosen"));
  args = routed.args(x, {}, {}, 0);
  args.sort.end_expert = 9;
  EXPECT_THAT(reason(), testing::HasSubstr("[0, 9) is no range of the 8 experts"));
  args = routed.args(x, x, {}, 0);
  EXPECT_THAT(reason(), testing::HasSubstr("selection_bias: expected float [8]"));
  EXPECT_THROW(route_tokens::enqueue(device().stream, args, {2}), Error);
}

}  // namespace
}  // namespace moecl::test
