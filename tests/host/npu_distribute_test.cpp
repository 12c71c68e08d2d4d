// Dispatch and combine over random groups, routings and masks against their definition, on every kind of group.
#include "tests/oracle/npu_distribute.hpp"

#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>

#include "host/npu/describe_distribute.hpp"
#include "tests/dispatch/ranks.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

using Values = std::vector<double>;
using Outputs = std::map<std::string, Values>;
constexpr std::uint64_t problems = 100;  // a setting

class NpuDistributeTest : public testing::TestWithParam<Setting> {
 protected:
  RankGroup& group(std::int32_t ranks) {
    std::unique_ptr<Ranks>& found = groups_[ranks];
    GroupOptions options;
    options.transport = GetParam().transport;
    if (found == nullptr) found = std::make_unique<Ranks>(ranks, GetParam().places, options);
    return found->group;
  }

 private:
  std::map<std::int32_t, std::unique_ptr<Ranks>> groups_;
};
INSTANTIATE_TEST_SUITE_P(Places, NpuDistributeTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

/// Calls the operator on poisoned outputs and a strict fault word. Errors: the operator's; what the fault word says
template <class Args>
Outputs call_on(Communicator& world, Args args) {
  const StreamView stream = world.stream();
  infer(args);
  std::vector<Buffer> memory;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    memory.emplace_back(*stream.context, view.size_bytes());
    view.buffer = memory.back().view();
  });
  const Buffer workspace(*stream.context, workspace_bytes(args, stream.device->caps));
  const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  npu::Call how;
  how.workspace = workspace.view();
  how.tail = npu::Tail::poison;
  how.fault = fault;
  npu::Describe<Args>::run(world, args, how);
  Outputs outputs;
  npu::for_each_output(args, [&](const char* name, TensorView& view) {
    std::vector<unsigned char> bytes(view.size_bytes());
    read_blocking(stream, view.buffer, bytes.data(), bytes.size());
    outputs[name] = decode(view.dtype, bytes);
  });
  check_fault(stream, fault);
  return outputs;
}

Values of(const std::vector<std::int32_t>& values) { return {values.begin(), values.end()}; }
Values of(const std::vector<bool>& values) { return {values.begin(), values.end()}; }
Values row_of(const Values& matrix, std::int64_t row, std::int64_t width) {
  return {matrix.begin() + row * width, matrix.begin() + (row + 1) * width};
}

/// One random call of both operators.
struct Problem {
  oracle::DistributeGroup group;
  std::int64_t global_bs = 0, quant_mode = 0, comm_quant_mode = 0, nums_type = 1;
  int mask_rank = 0;            ///< 0: none
  std::int32_t per_server = 0;  ///< ranks_per_server of comm_alg hierarchy; 0: fullmesh
  std::int32_t said_rank = -1;  ///< instead of the rank
  bool smooth = false, shared_x = false, first_version = false;
  Values scales, alpha_1, alpha_2, v;
  std::vector<Values> shared_rows;  ///< of each rank, [T, H]

  explicit Problem(std::uint64_t seed, bool hierarchy = false);
  std::int64_t most_tokens() const {
    std::int64_t most = 0;
    for (const auto& rank : group.ranks) most = std::max(most, rank.tokens);
    return most;
  }
  void draw_rank(std::mt19937_64& engine, std::int64_t tokens);
};

Problem::Problem(std::uint64_t seed, bool hierarchy) {
  std::mt19937_64 engine(seed);
  const auto ranks = static_cast<std::int32_t>(between(engine, 1, 8));
  if (hierarchy) {
    do per_server = static_cast<std::int32_t>(between(engine, 1, ranks));
    while (ranks % per_server != 0);
  }
  if (!hierarchy && ranks >= 3 && between(engine, 0, 2) == 0) {
    group.shared = static_cast<std::int32_t>(between(engine, 1, 2));
    group.shared_ranks = group.shared * static_cast<std::int32_t>(between(engine, 1, (ranks - 1) / group.shared));
  }
  group.experts = (ranks - group.shared_ranks) * static_cast<std::int32_t>(between(engine, 1, 3));
  first_version = !hierarchy && between(engine, 0, 3) == 0;
  if (!first_version) {
    mask_rank = static_cast<int>(between(engine, 0, 2));
    if (!hierarchy && between(engine, 0, 2) == 0) {
      group.zero = static_cast<std::int32_t>(between(engine, 0, 2));
      group.copy = static_cast<std::int32_t>(between(engine, 0, 2));
      group.consts = static_cast<std::int32_t>(between(engine, 0, 2));
    }
  }
  const std::int32_t ids = group.experts + group.zero + group.copy + group.consts;
  group.top_k = static_cast<std::int32_t>(between(engine, 1, std::min(ids, 4)));
  group.hidden = 8 * between(engine, 1, 5);
  quant_mode = 2 * between(engine, 0, 1);
  comm_quant_mode = hierarchy ? 0 : 2 * between(engine, 0, 1);
  nums_type = between(engine, 0, 1);
  smooth = quant_mode == 2 && between(engine, 0, 1) == 1;
  shared_x = between(engine, 0, 2) == 0;
  const std::int64_t same = between(engine, 0, 5);
  const bool uneven = between(engine, 0, 1) == 1;
  for (std::int32_t r = 0; r < ranks; ++r) draw_rank(engine, uneven ? between(engine, 0, 5) : same);
  if (uneven) global_bs = ranks * (most_tokens() + between(engine, most_tokens() == 0 ? 1 : 0, 1));
  const auto random = [&](std::int64_t count) {
    return rounded(DType::bf16, normal(static_cast<std::size_t>(count), engine()));
  };
  scales = random((group.shared + group.experts) * group.hidden);
  alpha_1 = random(group.consts * group.hidden);
  alpha_2 = random(group.consts * group.hidden);
  v = random(group.consts * group.hidden);
  for (const auto& rank : group.ranks) shared_rows.push_back(random(rank.tokens * group.hidden));
}

void Problem::draw_rank(std::mt19937_64& engine, std::int64_t tokens) {
  oracle::DistributeRank rank;
  rank.tokens = tokens;
  const std::int64_t first_inactive = between(engine, 0, tokens);
  const bool skewed = between(engine, 0, 3) == 0;
  std::vector<std::int32_t> all(static_cast<std::size_t>(group.experts + group.zero + group.copy + group.consts));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!skewed) std::shuffle(all.begin(), all.end(), engine);
    bool some = false;
    for (std::int32_t k = 0; k < group.top_k; ++k) {
      rank.ids.push_back(all[static_cast<std::size_t>(k)]);
      rank.pair_active.push_back(mask_rank == 0 || (mask_rank == 1 ? t < first_inactive : between(engine, 0, 2) != 0));
      some |= rank.pair_active.back();
    }
    rank.active.push_back(some);
  }
  rank.x = rounded(DType::bf16, normal(static_cast<std::size_t>(tokens * group.hidden), engine()));
  rank.weights = rounded(DType::f32, normal(static_cast<std::size_t>(tokens * group.top_k), engine()));
  group.ranks.push_back(std::move(rank));
}

template <class Args>
void set_group(Args& args, const Problem& problem, const Communicator& world) {
  args.ep_world_size = world.size();
  args.ep_rank_id = problem.said_rank < 0 ? world.rank() : problem.said_rank;
  args.moe_expert_num = problem.group.experts;
  args.shared_expert_num = problem.group.shared_ranks == 0 ? 1 : problem.group.shared;
  args.shared_expert_rank_num = problem.group.shared_ranks;
  args.global_bs = problem.global_bs;
  if constexpr (requires { args.zero_expert_num; }) {
    args.zero_expert_num = problem.group.zero;
    args.copy_expert_num = problem.group.copy;
    args.const_expert_num = problem.group.consts;
    if (problem.per_server != 0) args.comm_alg = npu::CommAlg::hierarchy;
    args.ranks_per_server = problem.per_server;
  }
}

/// A rank's tensors that both operators take.
struct Inputs {
  DeviceTensor x, ids, weights, mask;

  Inputs(StreamView stream, const Problem& problem, std::int32_t rank)
      : Inputs(stream, problem, problem.group.ranks[static_cast<std::size_t>(rank)]) {}
  Inputs(StreamView stream, const Problem& problem, const oracle::DistributeRank& mine)
      : x(stream, DType::bf16, {mine.tokens, problem.group.hidden}, mine.x),
        ids(stream, DType::i32, {mine.tokens, problem.group.top_k}, of(mine.ids)),
        weights(stream, DType::f32, {mine.tokens, problem.group.top_k}, mine.weights),
        mask(problem.mask_rank == 1
                 ? DeviceTensor(stream, DType::i8, {mine.tokens}, of(mine.active))
                 : DeviceTensor(stream, DType::i8, {mine.tokens, problem.group.top_k}, of(mine.pair_active))) {
    mask.view.dtype = DType::boolean;
  }
};

template <class Args>
Outputs dispatch_on(Communicator& world, const Problem& problem, const Inputs& in) {
  Args args;
  set_group(args, problem, world);
  args.x = in.x;
  args.expert_ids = in.ids;
  args.quant_mode = problem.quant_mode;
  args.expert_token_nums_type = problem.nums_type;
  const DeviceTensor scales(world.stream(), DType::f32,
                            {problem.group.shared + problem.group.experts, problem.group.hidden}, problem.scales);
  if (problem.smooth) args.scales = scales;
  if constexpr (requires { args.comm_alg; }) {
    if (problem.mask_rank != 0) args.x_active_mask = in.mask;
    args.expert_scales = in.weights;
  }
  return call_on(world, args);
}

template <class Args>
Outputs combine_on(Communicator& world, const Problem& problem, const Inputs& in, const Outputs& dispatched,
                   const Values& rows) {
  const StreamView stream = world.stream();
  const auto& group = problem.group;
  const auto count = [](const Values& values) { return static_cast<std::int64_t>(values.size()); };
  Args args;
  set_group(args, problem, world);
  const DeviceTensor expand_x(stream, DType::bf16, {count(rows) / group.hidden, group.hidden}, rows),
      counts(stream, DType::i32, {count(dispatched.at("ep_recv_counts"))}, dispatched.at("ep_recv_counts")),
      shared(stream, DType::bf16, {in.x.view.shape[0], group.hidden},
             problem.shared_rows[static_cast<std::size_t>(world.rank())]),
      alpha_1(stream, DType::bf16, {group.consts, group.hidden}, problem.alpha_1),
      alpha_2(stream, DType::bf16, {group.consts, group.hidden}, problem.alpha_2),
      v(stream, DType::bf16, {group.consts, group.hidden}, problem.v);
  args.expand_x = expand_x;
  args.expert_ids = in.ids;
  args.expert_scales = in.weights;
  args.ep_send_counts = counts;
  args.comm_quant_mode = problem.comm_quant_mode;
  if (problem.shared_x) args.shared_expert_x = shared;
  const Values& info = dispatched.at(problem.first_version ? "expand_idx" : "assist_info_for_combine");
  const DeviceTensor device_info(stream, DType::i32, {count(info)}, info);
  const Values row_weights = problem.per_server == 0 ? Values() : dispatched.at("expand_scales");
  const DeviceTensor expand_scales(stream, DType::f32, {count(row_weights)}, row_weights);
  if constexpr (requires { args.comm_alg; }) {
    args.assist_info_for_combine = device_info;
    if (problem.per_server != 0) args.expand_scales = expand_scales;
    if (problem.mask_rank != 0) args.x_active_mask = in.mask;
    args.ori_x = in.x;
    args.const_expert_alpha_1 = alpha_1;
    args.const_expert_alpha_2 = alpha_2;
    args.const_expert_v = v;
  } else {
    args.expand_idx = device_info;
  }
  return call_on(world, args);
}

void expect_dispatched(const Problem& problem, std::int32_t rank, const Outputs& got) {
  const auto& group = problem.group;
  const std::vector<oracle::DistributedRow> rows = oracle::dispatched_rows(group, rank);
  const std::int32_t local = group.local_experts(rank), ranks = group.size();
  Values ends(static_cast<std::size_t>(local * ranks)), nums(static_cast<std::size_t>(local)), codes, scales, triples,
      weights;
  for (const oracle::DistributedRow& row : rows) {
    for (std::int32_t i = row.expert * ranks + row.source; i < local * ranks; ++i) ++ends[static_cast<std::size_t>(i)];
    for (std::int32_t e = row.expert; e < (problem.nums_type == 0 ? local : row.expert + 1); ++e)
      ++nums[static_cast<std::size_t>(e)];
    const auto& from = group.ranks[static_cast<std::size_t>(row.source)];
    Values x = row_of(from.x, row.token, group.hidden);
    if (problem.smooth) {
      const std::int32_t vector =
          row.column >= group.top_k
              ? row.column - group.top_k
              : group.shared + from.ids[static_cast<std::size_t>(row.token * group.top_k + row.column)];
      for (std::size_t h = 0; h < x.size(); ++h)
        x[h] = static_cast<float>(x[h] * problem.scales[static_cast<std::size_t>(vector * group.hidden) + h]);
    }
    if (problem.quant_mode == 2) {
      const oracle::QuantizedRow q = oracle::quantize_row(x, quantize_rows::Rounding::multiply_127_by_amax);
      x.assign(q.q.begin(), q.q.end());
      scales.push_back(q.scale);
    }
    codes.insert(codes.end(), x.begin(), x.end());
    triples.insert(triples.end(), {double(row.source), double(row.token), double(row.column)});
    if (problem.per_server != 0)
      weights.push_back(from.weights[static_cast<std::size_t>(row.token * group.top_k + row.column)]);
  }
  EXPECT_EQ(got.at("ep_recv_counts"), ends);
  EXPECT_EQ(got.at("expert_token_nums"), nums);
  const auto expect_prefix = [&](const char* name, const Values& expected) {
    const Values& all = got.at(name);
    ASSERT_GE(all.size(), expected.size()) << name;
    EXPECT_EQ(Values(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(expected.size())), expected) << name;
    const double integer = name == std::string("expand_x") ? 0x5a : 0x5a5a5a5a;
    for (std::size_t i = expected.size(); i < all.size(); ++i)
      ASSERT_TRUE(std::isnan(all[i]) || all[i] == integer) << name << "[" << i << "] was written: " << all[i];
  };
  expect_prefix("expand_x", codes);
  if (problem.quant_mode == 2) expect_prefix("dynamic_scales", scales);
  if (!problem.first_version) expect_prefix("assist_info_for_combine", triples);
  if (problem.per_server != 0) expect_prefix("expand_scales", weights);
}

/// What the int8 wire makes of a row.
Values over_wire(const Problem& problem, Values row) {
  if (problem.comm_quant_mode == 0) return row;
  for (auto first = row.begin(); first != row.end(); first += 8) {
    const oracle::QuantizedRow q = oracle::quantize_row({first, first + 8}, quantize_rows::Rounding::divide_scaled_f16);
    const double scale = rounded(DType::bf16, {q.scale}).front();
    for (int i = 0; i < 8; ++i) first[i] = static_cast<float>(q.q[static_cast<std::size_t>(i)] * scale);
  }
  return rounded(DType::bf16, row);
}

/// @param rows  expand_x of every rank
Values expected_out(const Problem& problem, std::int32_t home, const std::vector<Values>& rows) {
  const auto& group = problem.group;
  const auto& mine = group.ranks[static_cast<std::size_t>(home)];
  Values out;
  for (std::int64_t t = 0; t < mine.tokens; ++t) {
    std::vector<oracle::CombineTerm> terms;
    const Values x = row_of(mine.x, t, group.hidden);
    for (std::int32_t c = 0; c < group.top_k + group.shared; ++c) {
      const auto pair = static_cast<std::size_t>(t * group.top_k + c);
      const double weight = c < group.top_k ? mine.weights[pair] : 1;
      const std::int32_t to = oracle::destination(group, home, t, c);
      if (to >= 0) {
        const auto there = oracle::dispatched_rows(group, to);
        const auto found = std::find_if(there.begin(), there.end(), [&](const auto& row) {
          return row.source == home && row.token == t && row.column == c;
        });
        terms.push_back({weight, over_wire(problem, row_of(rows[static_cast<std::size_t>(to)], found - there.begin(),
                                                           group.hidden))});
      } else if (c < group.top_k && mine.pair_active[pair]) {
        const std::int32_t special = mine.ids[pair] - group.experts - group.zero;
        if (special < 0) continue;
        Values row = x;
        if (special >= group.copy)
          for (std::size_t h = 0; h < row.size(); ++h) {
            const std::size_t i = static_cast<std::size_t>((special - group.copy) * group.hidden) + h;
            row[h] = static_cast<float>(double(static_cast<float>(problem.alpha_1[i] * x[h])) +
                                        double(static_cast<float>(problem.alpha_2[i] * problem.v[i])));
          }
        terms.push_back({weight, row});
      }
    }
    const Values last =
        problem.shared_x ? row_of(problem.shared_rows[static_cast<std::size_t>(home)], t, group.hidden) : Values();
    Values sum = rounded(DType::bf16, oracle::combined(terms, last, group.hidden));
    if (!mine.active[static_cast<std::size_t>(t)]) sum.assign(sum.size(), std::nan(""));  // not written: poison
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

/// The same with comm_alg hierarchy: each server's sum, in the order of its experts, is rounded before they are added.
Values expected_of_servers(const Problem& problem, std::int32_t home, const std::vector<Values>& rows) {
  const auto& group = problem.group;
  const auto& mine = group.ranks[static_cast<std::size_t>(home)];
  Values out;
  for (std::int64_t t = 0; t < mine.tokens; ++t) {
    std::vector<oracle::CombineTerm> sums;
    for (std::int32_t first = 0; first < group.size(); first += problem.per_server) {
      std::vector<oracle::CombineTerm> terms;
      for (std::int32_t rank = first; rank < first + problem.per_server; ++rank) {
        const auto there = oracle::dispatched_rows(group, rank);
        for (std::size_t i = 0; i < there.size(); ++i)
          if (there[i].source == home && there[i].token == t)
            terms.push_back({mine.weights[static_cast<std::size_t>(t * group.top_k + there[i].column)],
                             row_of(rows[static_cast<std::size_t>(rank)], static_cast<std::int64_t>(i), group.hidden)});
      }
      sums.push_back({1, rounded(DType::bf16, oracle::combined(terms, {}, group.hidden))});
    }
    const Values last =
        problem.shared_x ? row_of(problem.shared_rows[static_cast<std::size_t>(home)], t, group.hidden) : Values();
    Values sum = rounded(DType::bf16, oracle::combined(sums, last, group.hidden));
    if (!mine.active[static_cast<std::size_t>(t)]) sum.assign(sum.size(), std::nan(""));  // not written: poison
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

template <class Dispatch, class Combine>
void check_both(RankGroup& group, const Problem& problem) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<Outputs> dispatched(ranks), combined(ranks);
  std::vector<Values> rows(ranks);
  group.run([&](Communicator& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    const Inputs in(world.stream(), problem, world.rank());
    dispatched[r] = dispatch_on<Dispatch>(world, problem, in);
    // What the experts would compute, and NaN behind the rows that they have.
    rows[r] = rounded(DType::bf16, normal(dispatched[r].at("expand_x").size(), 7 + r));
    const auto valid = static_cast<std::size_t>(dispatched[r].at("ep_recv_counts").back());
    std::fill(rows[r].begin() + static_cast<std::ptrdiff_t>(valid * static_cast<std::size_t>(problem.group.hidden)),
              rows[r].end(), std::nan(""));
    combined[r] = combine_on<Combine>(world, problem, in, dispatched[r], rows[r]);
  });
  for (std::int32_t rank = 0; rank < group.size(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks);
    expect_dispatched(problem, rank, dispatched[static_cast<std::size_t>(rank)]);
    EXPECT_THAT(combined[static_cast<std::size_t>(rank)].at("out"),
                testing::Pointwise(testing::NanSensitiveDoubleEq(), problem.per_server == 0
                                                                        ? expected_out(problem, rank, rows)
                                                                        : expected_of_servers(problem, rank, rows)));
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(NpuDistributeTest, AgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < problems; ++seed) {
    SCOPED_TRACE(testing::Message() << "problem " << seed);
    const Problem problem(seed);
    RankGroup& on = group(problem.group.size());
    if (problem.first_version)
      check_both<npu::MoeDistributeDispatchArgs, npu::MoeDistributeCombineArgs>(on, problem);
    else
      check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(on, problem);
    if (HasFailure()) return;
  }
}

TEST_P(NpuDistributeTest, HierarchyAgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < problems / 2; ++seed) {
    const Problem problem(seed, true);
    SCOPED_TRACE(testing::Message() << "problem " << seed << ", " << problem.per_server << " ranks a server");
    check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(group(problem.group.size()), problem);
    if (HasFailure()) return;
  }
}

/// Two ranks with four experts, two tokens each, top 2.
Problem small_problem() {
  Problem problem(0);
  problem.group = {};
  problem.group.experts = 4;
  problem.group.top_k = 2;
  problem.group.hidden = 8;
  problem.global_bs = problem.quant_mode = problem.comm_quant_mode = 0;
  problem.mask_rank = 0;
  problem.smooth = problem.shared_x = problem.first_version = false;
  problem.scales = Values(32);
  problem.alpha_1 = problem.alpha_2 = problem.v = {};
  problem.shared_rows = {Values(16), Values(16)};
  for (int rank = 0; rank < 2; ++rank)
    problem.group.ranks.push_back(
        {2, {0, 3, 1, 2}, {true, true, true, true}, {true, true}, Values(16, 1), Values(4, 1)});
  return problem;
}

Outputs dispatch_small(Communicator& world, const Problem& problem) {
  const Inputs in(world.stream(), problem, world.rank());
  return dispatch_on<npu::MoeDistributeDispatchV2Args>(world, problem, in);
}

TEST_P(NpuDistributeTest, StrictModeReportsBadRouting) {
  const auto refuses = [&](const Problem& problem, const char* text) {
    Ranks on(2, GetParam().places, {std::chrono::milliseconds(30000), GetParam().transport});
    try {
      on.group.run([&](Communicator& world) { dispatch_small(world, problem); });
      ADD_FAILURE() << "expected: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(text));
    }
  };
  Problem repeated = small_problem();
  repeated.group.ranks[1].ids = {0, 3, 2, 2};
  refuses(repeated, "slot 3 asks for expert 2, as an earlier slot of its token does");
  Problem outside = small_problem();
  outside.group.ranks[0].ids = {0, 4, 1, 2};
  refuses(outside, "slot 1 asks for expert 4, which does not exist");
  Problem holes = small_problem();
  holes.mask_rank = 1;
  holes.group.ranks[0].active = {false, true};
  refuses(holes, "active tokens must come first");
}

TEST_P(NpuDistributeTest, StrictCombineRefusesAnotherCallsInfo) {
  Ranks on(2, GetParam().places, {std::chrono::milliseconds(30000), GetParam().transport});
  const Problem problem = small_problem();
  Problem other = problem;
  other.group.ranks[1].ids = {0, 3, 2, 1};  // the same counts
  try {
    on.group.run([&](Communicator& world) {
      const Inputs in(world.stream(), problem, world.rank()), now(world.stream(), other, world.rank());
      const Outputs dispatched = dispatch_on<npu::MoeDistributeDispatchV2Args>(world, problem, in);
      combine_on<npu::MoeDistributeCombineV2Args>(world, other, now, dispatched, Values(8 * 8));
    });
    ADD_FAILURE() << "the info of another call was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("is not of the dispatch with these expert ids"));
  }
}

TEST_P(NpuDistributeTest, EveryRankHearsOfDisagreementAndTheGroupGoesOn) {
  RankGroup& on = group(2);
  const auto all_hear = [&](auto spoil, const char* first, const char* second) {
    std::vector<std::string> texts(2);
    on.run([&](Communicator& world) {
      Problem mine = small_problem();
      spoil(mine, world.rank());
      try {
        dispatch_small(world, mine);
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    EXPECT_THAT(texts[0], testing::HasSubstr(first));
    EXPECT_THAT(texts[1], testing::HasSubstr(second));
    EXPECT_EQ(on.failure(), "");
  };
  all_hear([](Problem& p, int rank) { p.global_bs = rank == 0 ? 4 : 8; }, "global_bs: rank 1 has 8, rank 0 has 4",
           "global_bs: rank 1 has 8, rank 0 has 4");
  all_hear(
      [](Problem& p, int rank) {
        if (rank == 1) p.group.ranks[1] = {1, {0, 3}, {true, true}, {true}, Values(8, 1), Values(2, 1)};
      },
      "BS (with global_bs 0): rank 1 has 1, rank 0 has 2", "BS (with global_bs 0): rank 1 has 1, rank 0 has 2");
  all_hear([](Problem& p, int) { p.said_rank = 0; }, "rank 1 refuses its arguments",
           "rank 0 of 2, but the communicator is rank 1 of 2");
  check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(on, small_problem());
}

}  // namespace
}  // namespace moecl::test
