// Dispatch and combine over random groups, routings and masks against their definition, on every kind of group.
#include <gmock/gmock.h>

#include "tests/host/npu_distribute_problem.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

constexpr std::uint64_t problems = 100;  // a setting

class NpuDistributeTest : public NpuDistributeGroups {};
INSTANTIATE_TEST_SUITE_P(Places, NpuDistributeTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

Values row_of(const Values& matrix, std::int64_t row, std::int64_t width) {
  return {matrix.begin() + row * width, matrix.begin() + (row + 1) * width};
}

void expect_dispatched(const DistributeProblem& problem, std::int32_t rank, const NamedValues& got) {
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
Values over_wire(const DistributeProblem& problem, Values row) {
  if (problem.comm_quant_mode == 0) return row;
  for (auto first = row.begin(); first != row.end(); first += 8) {
    const oracle::QuantizedRow q = oracle::quantize_row({first, first + 8}, quantize_rows::Rounding::divide_scaled_f16);
    const double scale = rounded(DType::bf16, {q.scale}).front();
    for (int i = 0; i < 8; ++i) first[i] = static_cast<float>(q.q[static_cast<std::size_t>(i)] * scale);
  }
  return rounded(DType::bf16, row);
}

/// @param rows  expand_x of every rank
Values expected_out(const DistributeProblem& problem, std::int32_t home, const std::vector<Values>& rows) {
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
Values expected_of_servers(const DistributeProblem& problem, std::int32_t home, const std::vector<Values>& rows) {
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
void check_both(GroupOfRanks& group, const DistributeProblem& problem) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<NamedValues> dispatched(ranks), combined(ranks);
  std::vector<Values> rows(ranks);
  group.run([&](Communicator& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    const DistributeInputs in(world.stream(), problem, world.rank());
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
    const DistributeProblem problem(seed);
    GroupOfRanks& on = group(problem.group.size());
    if (problem.first_version)
      check_both<npu::MoeDistributeDispatchArgs, npu::MoeDistributeCombineArgs>(on, problem);
    else
      check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(on, problem);
    if (HasFailure()) return;
  }
}

TEST_P(NpuDistributeTest, HierarchyAgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < problems / 2; ++seed) {
    const DistributeProblem problem(seed, true);
    SCOPED_TRACE(testing::Message() << "problem " << seed << ", " << problem.per_server << " ranks a server");
    check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(group(problem.group.size()), problem);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace moecl::test
