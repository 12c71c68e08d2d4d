#include "tests/cases/route_tokens.hpp"

#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

class RouteTokensTest : public OperatorTest<RouteTokensCase> {
 protected:
  bool groups_wait() const { return device().caps().nv_compute_capability >= 70; }
  /// Checks against the oracles, and bit for bit against the two separate operators.
  void check(const RouteTokensCase& of) const {
    SCOPED_TRACE(of.describe());
    const OperandsOf<RouteTokensCase> apart(device().stream, of, Guards::around),
        elsewhere(device().stream, of, Guards::around);
    OperandsOf<RouteTokensCase> routed(device().stream, of, Guards::around);
    gating_top_k::enqueue(device().stream, apart.args.gating, of.spec);
    expert_sort::enqueue(device().stream, apart.args.sort);
    const std::uint64_t before = device().context->counters().kernels_launched;
    for (const Compared& output : routed.run()) EXPECT_TRUE(output.ok()) << output.describe();
    const bool one = route_tokens::reject_one_launch(routed.args, of.spec, device().record()).empty();
    EXPECT_EQ(device().context->counters().kernels_launched - before, one ? 1U : 2U);
    EXPECT_EQ(one, of.tokens() <= 16 || (groups_wait() && of.rows_per_expert == 0));
    const std::vector<unsigned char> weights = routed.bytes(routed.args.gating.weights);
    EXPECT_EQ(weights, apart.bytes(apart.args.gating.weights));

    const route_tokens::Plan plan = route_tokens::plan(routed.args, of.spec, device().record());
    EXPECT_THAT((one ? plan.one_launch : plan.gating).describe(), testing::HasSubstr("-DLANES="));
    route_tokens::enqueue(device().stream, plan, elsewhere.args, of.spec);
    EXPECT_EQ(elsewhere.bytes(elsewhere.args.gating.weights), weights);
    EXPECT_EQ(elsewhere.bytes(elsewhere.args.sort.sorted_slots), routed.bytes(routed.args.sort.sorted_slots));
  }
  /// Work-groups without patience report a fault, and leave no weight that looks like a result.
  void expect_late(const OperandsOf<RouteTokensCase>& routed, const RouterSpec& spec) const {
    routed.renew();
    route_tokens::Plan plan = route_tokens::plan(routed.args, spec, device().record());
    plan.patience = 0;
    route_tokens::enqueue(device().stream, plan, routed.args, spec);
    EXPECT_EQ(routed.values(routed.args.sort.fault)[0], static_cast<double>(FaultCode::group_late));
    for (const double weight : routed.values(routed.args.gating.weights)) EXPECT_TRUE(std::isnan(weight));
  }
};
MOECL_ON_EVERY_DEVICE(RouteTokensTest);

/// A GPU to plan for. The record copies nothing from the device under test, whose CPU may have its own variants.
Device planned_gpu() {
  Device gpu;
  gpu.caps.type = DeviceType::gpu;
  gpu.caps.max_work_group_size = 1024;
  return gpu;
}

/// The same of NVIDIA's, whose work-groups can wait for each other.
Device planned_nvidia() {
  Device gpu = planned_gpu();
  gpu.caps.nv_compute_capability = 90;
  gpu.caps.compute_units = 8;
  gpu.caps.static_local_mem_bytes = gpu.caps.local_mem_bytes = 227 << 10;
  return gpu;
}

RouterSpec qwen3() {
  RouterSpec spec{8};
  spec.renormalise = true;
  return spec;
}

TEST_P(RouteTokensTest, FewTokensTakeOneLaunch) {
  for (const std::size_t tokens : {1, 2, 5, 16, 17}) check({128, normal(tokens * 128, tokens), {}, qwen3()});
  check({1, {1, 2, 3}, {}, {1}});
  check({7, normal(3 * 7, 7), {}, {7}});
}

/// On an NVIDIA GPU many tokens do too: work-groups have chunks of them, with one or several rounds of a token per
/// team.
TEST_P(RouteTokensTest, ManyTokensAreChunks) {
  for (const std::size_t tokens : {32, 33, 200, 513, 700}) check({128, normal(tokens * 128, tokens), {}, qwen3()});
  check({1, normal(40, 1), {}, {1}});
  check({7, normal(301 * 7, 7), {}, {7}});
  check({130, normal(65 * 130, 8), {}, {3}});
  std::vector<std::uint8_t> finished(150);
  for (std::size_t token = 0; token < finished.size(); token += 3) finished[token] = 1;
  check({12, normal(150 * 12, 8), {}, {3}, 0, finished});
  check({12, normal(150 * 12, 8), {}, {3}, 0, finished, 7});  // a token has an expert several times
}

TEST_P(RouteTokensTest, AChunkThatDoesNotComeIsAFault) {
  if (!groups_wait()) return;  // no work-group waits
  const RouteTokensCase of{12, normal(150 * 12, 1), {}, {3}};
  const OperandsOf<RouteTokensCase> routed(device().stream, of, Guards::around);
  expect_late(routed, of.spec);
  // Whoever reads them stays within the tokens and their rows.
  for (const double end : routed.values(routed.args.sort.row_ends)) EXPECT_EQ(end, 0);
  for (const double row : routed.values(routed.args.sort.slot_rows)) EXPECT_EQ(row, 0);
  for (const double slot : routed.values(routed.args.sort.sorted_slots)) {
    EXPECT_GE(slot, 0);
    EXPECT_LT(slot, 450);
  }
}

TEST_P(RouteTokensTest, ChunksNeedScratchOneLayoutAndNothingBeside) {
  Device gpu = planned_nvidia();
  const RouteTokensCase of{12, normal(40 * 12, 1), {}, {3}};
  const auto reason = [&](const auto& change) {
    OperandsOf<RouteTokensCase> changed(device().stream, of);
    change(changed.args);
    return route_tokens::reject_one_launch(changed.args, of.spec, gpu);
  };
  using Args = route_tokens::Args;
  EXPECT_EQ(reason([](Args&) {}), "");
  EXPECT_EQ(reason([](Args& args) { args.scratch = {}; }),
            "scratch: 200 bytes are needed from a multiple of 16, got 0 at 0");
  EXPECT_EQ(reason([](Args& args) { args.concurrent = true; }), "other kernels may run at the same time");
  EXPECT_EQ(reason([](Args& args) { args.sort.order = args.sort.slot_rows; }), "slots are sorted in a given order");
  EXPECT_EQ(reason([](Args& args) { args.sort.rows_per_expert = 9; }), "the layout is batched");
  gpu.caps.nv_compute_capability = 61;
  EXPECT_EQ(reason([](Args&) {}), "40 tokens are not 1 to 16");
}

TEST_P(RouteTokensTest, ALaunchCostsWhatItDoes) {
  for (const std::int64_t tokens : {64, 65}) {
    const RouteTokensCase of = RouteTokensCase::routed(tokens, 12, 200, {3});
    const OperandsOf<RouteTokensCase> routed(device().stream, of);
    const route_tokens::Plan plan = route_tokens::plan(routed.args, of.spec, planned_nvidia());
    const std::uint64_t routing =
        gating_top_k::cost(routed.args.gating).bytes + expert_sort::cost(routed.args.sort).bytes;
    const std::uint64_t product = tokens == 64 ? grouped_gemm::cost(routed.args.router).bytes : 0;
    EXPECT_EQ(plan.one_launch.cost.bytes, routing + product);
    EXPECT_EQ(plan.why_several_launches, "");
  }
}

/// On an NVIDIA GPU the router's product is in the same launch, however the work is shared.
TEST_P(RouteTokensTest, MultipliesByTheRouter) {
  const bool in_one = groups_wait();
  const auto check_routed = [&](const RouteTokensCase& of) {
    SCOPED_TRACE(of.describe());
    OperandsOf<RouteTokensCase> routed(device().stream, of, Guards::around);
    const route_tokens::Plan plan = route_tokens::plan(routed.args, of.spec, device().record());
    EXPECT_EQ(plan.why_router_alone.empty(), in_one && of.tokens() <= 64) << plan.why_router_alone;
    const std::uint64_t before = device().context->counters().kernels_launched;
    for (const Compared& output : routed.run()) EXPECT_TRUE(output.ok()) << output.describe();
    if (plan.why_router_alone.empty()) {
      EXPECT_EQ(device().context->counters().kernels_launched - before, 1U);
    }
    return routed.values(routed.args.gating.logits);
  };
  RouterSpec sigmoid{4, ScoreFunction::sigmoid};
  for (const std::int64_t tokens : {1, 4, 5, 8, 9, 16, 17, 33, 64, 65})
    check_routed(RouteTokensCase::routed(tokens, 12, 200, {3}));
  check_routed(RouteTokensCase::routed(3, 130, 72, sigmoid, DType::f16, true));
  check_routed(RouteTokensCase::routed(2, 1, 8, {1}, DType::bf16, true));
  check_routed(RouteTokensCase::routed(5, 64, 1064, sigmoid));  // more slices than are loaded together

  const RouterSpec in_groups{
      3, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 4, 2, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F};
  RouteTokensCase batched = RouteTokensCase::routed(5, 16, 72, in_groups);
  batched.bias = normal(16, 4), batched.rows_per_expert = 2, batched.finished = {0, 1, 0, 0, 0};
  check_routed(batched);

  if (!in_one) return;
  RouteTokensCase all = RouteTokensCase::routed(40, 20, 136, sigmoid), one = all;
  one.x.resize(136), one.logits.resize(20);
  std::vector<double> logits = check_routed(all);
  logits.resize(20);
  EXPECT_EQ(logits, check_routed(one));  // a token's logits do not depend on the other tokens
}

TEST_P(RouteTokensTest, AHelperThatDoesNotComeIsAFault) {
  if (!groups_wait()) return;  // no work-group waits
  const RouteTokensCase of = RouteTokensCase::routed(5, 12, 200, {3});
  const OperandsOf<RouteTokensCase> routed(device().stream, of);
  expect_late(routed, of.spec);
}

TEST_P(RouteTokensTest, TheRouterHasALaunchOfItsOwnWhereOneCannotTakeIt) {
  Device gpu = planned_nvidia();
  const RouteTokensCase of = RouteTokensCase::routed(5, 12, 200, {3});
  const auto reason = [&](const auto& change, const Device& on) {
    OperandsOf<RouteTokensCase> changed(device().stream, of);
    change(changed.args);
    return route_tokens::plan(changed.args, of.spec, on).why_router_alone;
  };
  using Args = route_tokens::Args;
  EXPECT_EQ(reason([](Args&) {}, gpu), "");
  EXPECT_THAT(reason([](Args& args) { args.scratch.size_bytes = 8; }, gpu), testing::HasSubstr("scratch: "));
  gpu.caps.compute_units = 1;
  EXPECT_THAT(reason([](Args&) {}, gpu), testing::HasSubstr("the waiting work-group would take the only compute unit"));
  gpu.caps.compute_units = 8;
  const RouteTokensCase wide = RouteTokensCase::routed(1, 10000, 8, {3});
  const OperandsOf<RouteTokensCase> many(device().stream, wide);
  EXPECT_THAT(route_tokens::plan(many.args, wide.spec, gpu).why_router_alone,
              testing::HasSubstr("bytes of local memory are needed"));
  gpu.caps.nv_compute_capability = 61;
  EXPECT_EQ(reason([](Args&) {}, gpu),
            "router in a launch of its own: the device is no NVIDIA GPU of compute capability 7.0");
}

TEST_P(RouteTokensTest, EveryRuleOfARouter) {
  const RouterSpec deepseek_v3{
      8, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 8, 4, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F};
  check({256, normal(3 * 256, 2), normal(256, 3), deepseek_v3});
  check({60, normal(5 * 60, 4), {}, {4, ScoreFunction::softmax, ScoreOrder::after_top_k}});
  check({16, normal(4 * 16, 5), {}, {1, ScoreFunction::sigmoid, ScoreOrder::after_top_k}});
  RouterSpec mixer{2, ScoreFunction::sparse_mixer, ScoreOrder::after_top_k};
  mixer.mixer_jitter = 0.1F;
  check({16, normal(7 * 16, 6), {}, mixer});
  std::vector<double> hard;
  for (const std::vector<double>& row : hard_logits(20))
    if (hard.size() < std::size_t{16 * 20}) hard.insert(hard.end(), row.begin(), row.end());
  check({20, hard, {}, {4, ScoreFunction::softmax, ScoreOrder::before_top_k, 5, 3, GroupScore::max, true, 0, 1}});
}

TEST_P(RouteTokensTest, FusedSharedExpertsAreTakenByEveryTokenThatIsNotFinished) {
  RouterSpec spec{6, ScoreFunction::sigmoid};
  spec.fused_shared_experts = 2;
  spec.scaling_factor = 2.5F;
  for (const std::size_t tokens : {1, 5, 16, 17}) check({12, normal(tokens * 12, tokens), normal(12, 3), spec});
  check({12, normal(3 * 12, 8), {}, spec, 4, {0, 1, 0}});
}

TEST_P(RouteTokensTest, FinishedTokensChooseNobodyAndFullExpertsAreReported) {
  check({12, normal(5 * 12, 8), {}, {3}, 0, {0, 1, 0, 0, 1}});
  check({12, normal(2 * 12, 9), {}, {3}, 0, {1, 1}});
  check({12, normal(5 * 12, 8), {}, {3}, 0, {0, 1, 0, 0, 1}, 7});  // a token has an expert several times
  check({6, normal(4 * 6, 10), {}, {3}, 4});
  std::vector<double> same;  // all tokens choose experts 0 and 1, which take one row each
  for (int t = 0; t < 4; ++t) same.insert(same.end(), {3, 2, 1, 0});
  check({4, same, {}, {2}, 1});
}

TEST_P(RouteTokensTest, TokensBecomeCodesInTheSameLaunch) {
  constexpr std::int64_t experts = 12, hidden = 84;
  for (const auto& [tokens, with_router] :
       {std::pair{std::int64_t{5}, false}, {5, true}, {groups_wait() ? 100 : 16, false}})
    for (const auto& [format, group] : {std::pair{CodeType::i8, std::int64_t{0}}, {CodeType::f8_e4m3, 32}}) {
      const GuardedTensor x =
          upload(device(), DType::bf16, {tokens, hidden}, normal(static_cast<std::size_t>(tokens * hidden), 2));
      const RouteTokensCase given{experts, normal(static_cast<std::size_t>(tokens * experts), 1), {}, {2}};
      OperandsOf<RouteTokensCase> routed(
          device().stream, with_router ? RouteTokensCase::routed(tokens, experts, hidden, {2}) : given, Guards::around);
      const DType codes = format == CodeType::i8 ? DType::i8 : DType::f8_e4m3;
      const std::int64_t groups = group == 0 ? 1 : (hidden + group - 1) / group;
      const GuardedTensor q(device(), codes, {tokens, hidden}), scale(device(), DType::f32, {tokens, groups}),
          q_apart(device(), codes, {tokens, hidden}), scale_apart(device(), DType::f32, {tokens, groups});
      route_tokens::Args& args = routed.args;
      args.tokens.x = x;
      args.tokens.format = format;
      args.tokens.group = group;
      args.tokens.q = q;
      args.tokens.scale = scale;
      EXPECT_EQ(route_tokens::reject_one_launch(args, {2}, device().record()), "");
      for (const Compared& output : routed.run()) EXPECT_TRUE(output.ok()) << output.describe();
      quantize_groups::Args apart = args.tokens;
      apart.q = q_apart;
      apart.scale = scale_apart;
      quantize_groups::enqueue(device().stream, apart);
      EXPECT_EQ(q.read<std::uint8_t>(), q_apart.read<std::uint8_t>());
      EXPECT_EQ(scale.read<std::uint32_t>(), scale_apart.read<std::uint32_t>());
      args.tokens.group = -1;
      EXPECT_THAT(route_tokens::reject(args, {2}, device().record()), testing::HasSubstr("group: -1 is negative"));
    }
}

TEST_P(RouteTokensTest, TooManyScoresForTheLocalMemoryTakeTwoLaunches) {
  Device gpu = planned_gpu();
  gpu.caps.local_mem_bytes = 48 << 10;
  const OperandsOf<RouteTokensCase> routed(device().stream, {1024, std::vector<double>(16 * 1024), {}, {2}});
  const route_tokens::Args& args = routed.args;
  EXPECT_THAT(route_tokens::reject_one_launch(args, {2}, gpu), testing::HasSubstr("bytes of local memory are needed"));
  gpu.caps.max_work_group_size = 256;
  EXPECT_THAT(route_tokens::reject_one_launch(args, {2}, gpu), testing::HasSubstr("512 lanes are more"));
}

TEST_P(RouteTokensTest, RejectsWhatTheOperatorsRejectAndOtherIds) {
  const RouteTokensCase of{8, std::vector<double>(3 * 8), {}, {2}};
  const OperandsOf<RouteTokensCase> routed(device().stream, of), other(device().stream, of);
  route_tokens::Args args = routed.args;
  const auto reason = [&] { return route_tokens::reject(args, {2}, device().record()); };
  EXPECT_EQ(reason(), "");
  args.sort.ids = other.args.gating.ids;
  EXPECT_THAT(reason(), testing::HasSubstr("not those that are chosen"));
  args = routed.args;
  args.sort.end_expert = 9;
  EXPECT_THAT(reason(), testing::HasSubstr("[0, 9) is no range of the 8 experts"));
  args = routed.args;
  args.gating.selection_bias = args.gating.logits;
  EXPECT_THAT(reason(), testing::HasSubstr("selection_bias: expected float [8]"));
  const OperandsOf<RouteTokensCase> with_router(device().stream, RouteTokensCase::routed(3, 8, 16, {2}));
  args = with_router.args;
  args.router.out = routed.args.gating.logits;
  EXPECT_THAT(reason(), testing::HasSubstr("router: its rows are not the logits"));
  EXPECT_THROW(route_tokens::enqueue(device().stream, args, {2}), Error);
}

}  // namespace
}  // namespace moecl::test
