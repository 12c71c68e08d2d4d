// Dispatch and combine over random groups, routings and masks against their definition, on every kind of group.
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include <gmock/gmock.h>

#include "host/npu/steps.hpp"
#include "tests/host/npu_distribute_problem.hpp"
#include "tests/oracle/mx_quantize.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

constexpr std::uint64_t problems = 100;  // for each setting

class NpuDistributeTest : public NpuDistributeGroups {};
INSTANTIATE_TEST_SUITE_P(Places, NpuDistributeTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

Values row_of(const Values& matrix, std::int64_t row, std::int64_t width) {
  return {matrix.begin() + row * width, matrix.begin() + (row + 1) * width};
}

struct Coded {
  Values codes, scales;
};

Coded of_floats(const Values& x, const oracle::FloatRules& rules) {
  const oracle::FloatRow made = oracle::quantize_row_to_floats(x, rules);
  return {{made.q.begin(), made.q.end()}, {made.scale.begin(), made.scale.end()}};
}

Coded of_blocks(const Values& x, const mx_quantize::Args& rules) {
  const oracle::MxTensor made = oracle::mx_quantize(x, static_cast<std::int64_t>(x.size()), 1, rules);
  return {{made.y.begin(), made.y.end()}, {made.scale.begin(), made.scale.end()}};
}

/// The codes and scales of a row, already times its smooth vector, by quant_mode.
Coded coded(const DistributeProblem& problem, const Values& x) {
  using quantize_rows::Codes;
  using quantize_rows::Rounding;
  const bool e5m2 = problem.y_dtype == DType::f8_e5m2;
  const Codes fp8 = e5m2 ? Codes::e5m2 : Codes::e4m3;
  Coded out;
  mx_quantize::Args blocks;
  blocks.format = problem.y_codes == npu::RowCodeType::e2m1 ? fp4_e2m1 : e5m2 ? fp8_e5m2 : fp8_e4m3fn;
  switch (problem.quant_mode) {
    case 0:
      if (problem.y_codes == npu::RowCodeType::none) return {x, {}};
      for (const double value : x)
        out.codes.push_back(oracle::float_code(static_cast<float>(value), Codes::hif8, false));
      return out;
    case 1:
      for (const double value : x)
        out.codes.push_back(std::clamp(std::nearbyint(static_cast<float>(value)), -128.0F, 127.0F));
      return out;
    case 2: {
      if (problem.y_dtype) return of_floats(x, {fp8, Rounding::multiply_127_by_amax});
      const oracle::QuantizedRow q = oracle::quantize_row(x, Rounding::multiply_127_by_amax);
      return {{q.q.begin(), q.q.end()}, {q.scale}};
    }
    case 3:
      return of_floats(x, {fp8, Rounding::multiply_127_by_amax_scaled, 128});
    case 4:
      return of_blocks(x, blocks);
    default:
      blocks.scale_rule = mx_quantize::ScaleRule::ceil_ratio;
      blocks.least_amax = 1e-4F;
      blocks.zeros_stay = true;
      return of_blocks(x, blocks);
  }
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
    const Coded made = coded(problem, x);
    codes.insert(codes.end(), made.codes.begin(), made.codes.end());
    scales.insert(scales.end(), made.scales.begin(), made.scales.end());
    triples.insert(triples.end(), {double(row.source), double(row.token), double(row.column)});
    if (problem.weighted)
      weights.push_back(
          row.column >= group.top_k ? 1 : from.weights[static_cast<std::size_t>(row.token * group.top_k + row.column)]);
  }
  EXPECT_EQ(got.at("ep_recv_counts"), ends);
  EXPECT_EQ(got.at("expert_token_nums"), nums);
  const auto expect_prefix = [&](const char* name, const Values& expected) {
    const Values& all = got.at(name);
    ASSERT_GE(all.size(), expected.size()) << name;
    EXPECT_EQ(Values(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(expected.size())), expected) << name;
    const bool bytes = name == std::string("expand_x") || name == std::string("dynamic_scales");
    const double integer = bytes ? 0x5a : 0x5a5a5a5a;
    for (std::size_t i = expected.size(); i < all.size(); ++i)
      ASSERT_TRUE(std::isnan(all[i]) || all[i] == integer) << name << "[" << i << "] was written: " << all[i];
  };
  expect_prefix("expand_x", codes);
  if (problem.quant_mode >= 2) expect_prefix("dynamic_scales", scales);
  if (!problem.first_version) expect_prefix("assist_info_for_combine", triples);
  if (problem.weighted) expect_prefix("expand_scales", weights);
}

/// The row after its way over the wire, by comm_quant_mode.
Values over_wire(const DistributeProblem& problem, Values row) {
  if (problem.comm_quant_mode == 0) return row;
  if (problem.comm_quant_mode != 2) {
    mx_quantize::Args rules;
    rules.format = problem.comm_quant_mode == 3 ? fp8_e5m2 : fp8_e4m3fn;
    const Coded made = of_blocks(row, rules);
    for (std::size_t h = 0; h < row.size(); ++h)
      row[h] = std::ldexp(rules.format.decode(static_cast<std::uint8_t>(made.codes[h])),
                          static_cast<int>(made.scales[h / 32]) - 127);
    return rounded(DType::bf16, row);
  }
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

/// The same with comm_alg hierarchy: each server sums in the order of its experts and rounds; then the sums are added.
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
      const Values sum = oracle::combined(terms, {}, group.hidden);
      sums.push_back({1, problem.comm_quant_mode == 0 ? rounded(DType::bf16, sum) : over_wire(problem, sum)});
    }
    const Values last =
        problem.shared_x ? row_of(problem.shared_rows[static_cast<std::size_t>(home)], t, group.hidden) : Values();
    Values sum = rounded(DType::bf16, oracle::combined(sums, last, group.hidden));
    if (!mine.active[static_cast<std::size_t>(t)]) sum.assign(sum.size(), std::nan(""));  // not written: poison
    out.insert(out.end(), sum.begin(), sum.end());
  }
  return out;
}

/// The parameters of dispatch for the byte count.
oracle::DistributeBytes bytes_of_dispatch(const DistributeProblem& problem) {
  const std::int64_t hidden = problem.group.hidden;
  oracle::DistributeBytes bytes;
  bytes.per_server = problem.per_server;
  bytes.row = problem.y_codes == npu::RowCodeType::e2m1     ? hidden / 2
              : problem.quant_mode == 0 && !problem.y_dtype ? 2 * hidden
                                                            : hidden;
  if (problem.quant_mode == 2) bytes.row += 4;
  if (problem.quant_mode == 3) bytes.row += 4 * ((hidden + 127) / 128);
  if (problem.quant_mode >= 4) bytes.row += (hidden + 63) / 64 * 2;
  bytes.weights = problem.weighted;
  bytes.sources = !problem.first_version;
  bytes.row_for_each_pair = problem.smooth;
  return bytes;
}

oracle::DistributeBytes bytes_of_combine(const DistributeProblem& problem) {
  const auto& group = problem.group;
  const std::int64_t hidden = group.hidden, wire = problem.comm_quant_mode == 2 ? hidden + hidden / 8 * 2 : 2 * hidden,
                     experts = group.experts / (group.size() - group.shared_ranks),
                     most = problem.global_bs == 0 ? problem.most_tokens() : problem.global_bs / group.size();
  oracle::DistributeBytes bytes;
  bytes.per_server = problem.per_server;
  bytes.row = problem.per_server == 0 ? wire : 2 * hidden;
  bytes.partial = wire;
  bytes.capacity = most * std::min<std::int64_t>(experts, group.top_k);
  bytes.sources = !problem.first_version;
  return bytes;
}

template <class Dispatch, class Combine>
void check_both(GroupOfRanks& group, const DistributeProblem& problem) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<NamedValues> dispatched(ranks), combined(ranks);
  std::vector<Values> rows(ranks);
  group.run([&](Communicator& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    const DistributeInputs in(world.stream(), problem, world.rank());
    const auto before = static_cast<std::int64_t>(world.bytes_received());
    dispatched[r] = dispatch_on<Dispatch>(world, problem, in);
    const auto between = static_cast<std::int64_t>(world.bytes_received());
    EXPECT_EQ(between - before, oracle::dispatch_bytes(problem.group, world.rank(), bytes_of_dispatch(problem)));
    // Random rows stand for the experts' results; behind the valid rows there is NaN.
    const std::size_t codes_per_byte = problem.y_codes == npu::RowCodeType::e2m1 ? 2 : 1;
    rows[r] = rounded(DType::bf16, normal(codes_per_byte * dispatched[r].at("expand_x").size(), 7 + r));
    const auto valid = static_cast<std::size_t>(dispatched[r].at("ep_recv_counts").back());
    std::fill(rows[r].begin() + static_cast<std::ptrdiff_t>(valid * static_cast<std::size_t>(problem.group.hidden)),
              rows[r].end(), std::nan(""));
    combined[r] = combine_on<Combine>(world, problem, in, dispatched[r], rows[r]);
    EXPECT_EQ(static_cast<std::int64_t>(world.bytes_received()) - between,
              oracle::combine_bytes(problem.group, world.rank(), bytes_of_combine(problem)));
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
    if (!takes(GetParam(), seed)) continue;
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

/// Whole numbers in [0, 127], which every code type has.
Values whole_numbers(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Values out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(static_cast<double>(between(engine, 0, 127)));
  return out;
}

/// Rows of codes with `each` scales a row; 0: the scales are a vector.
void check_codes(GroupOfRanks& on, const DistributeProblem& problem, DType codes, DType of_scales, std::int64_t each) {
  const auto& group = problem.group;
  const auto seed = [](std::int32_t rank) { return static_cast<std::uint64_t>(rank); };
  on.run([&](Communicator& world) {
    const auto& mine = group.ranks[static_cast<std::size_t>(world.rank())];
    const DistributeInputs in(world.stream(), problem, world.rank());
    const DeviceTensor x(world.stream(), codes, {mine.tokens, group.hidden},
                         whole_numbers(mine.tokens * group.hidden, seed(world.rank()))),
        rows(world.stream(), of_scales, {mine.tokens, std::max<std::int64_t>(each, 1)},
             whole_numbers(mine.tokens * std::max<std::int64_t>(each, 1), 100 + seed(world.rank())));
    npu::MoeDistributeDispatchV2Args args;
    set_group(args, problem, world);
    args.x = x;
    args.expert_ids = in.ids;
    args.scales = rows;
    if (each == 0) args.scales = npu::reshaped(rows, {mine.tokens});
    const NamedValues got = call_on(world, args);
    Values expected, scales;
    const auto append = [](Values& to, const Values& from, std::int64_t row, std::int64_t width) {
      to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
    };
    for (const oracle::DistributedRow& row : oracle::dispatched_rows(group, world.rank())) {
      const std::int64_t tokens = group.ranks[static_cast<std::size_t>(row.source)].tokens,
                         width = std::max<std::int64_t>(each, 1);
      append(expected, whole_numbers(tokens * group.hidden, seed(row.source)), row.token, group.hidden);
      append(scales, whole_numbers(tokens * width, 100 + seed(row.source)), row.token, width);
    }
    const auto begins_with = [](const Values& all, const Values& first) {
      return all.size() >= first.size() && std::equal(first.begin(), first.end(), all.begin());
    };
    EXPECT_TRUE(begins_with(got.at("expand_x"), expected)) << name(codes);
    EXPECT_TRUE(begins_with(got.at("dynamic_scales"), scales)) << name(codes);
  });
}

TEST_P(NpuDistributeTest, CodesTravelWithTheirScales) {
  const auto is_plain = [](const DistributeProblem& of) {
    return of.group.size() >= 3 && of.mask_rank == 0 && of.group.zero + of.group.copy + of.group.consts == 0;
  };
  std::uint64_t number = 0;
  while (!is_plain(DistributeProblem(number))) ++number;
  const DistributeProblem problem(number);
  GroupOfRanks& on = group(problem.group.size());
  check_codes(on, problem, DType::u8, DType::u8, 4);
  check_codes(on, problem, DType::i8, DType::f32, 0);
  check_codes(on, problem, DType::i32, DType::f32, 2);
}

TEST_P(NpuDistributeTest, HierarchyAgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < problems / 2; ++seed) {
    if (!takes(GetParam(), seed)) continue;
    const DistributeProblem problem(seed, true);
    SCOPED_TRACE(testing::Message() << "problem " << seed << ", " << problem.per_server << " ranks a server");
    check_both<npu::MoeDistributeDispatchV2Args, npu::MoeDistributeCombineV2Args>(group(problem.group.size()), problem);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace moecl::test
