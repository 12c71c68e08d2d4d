// Every strategy over random groups, shapes, routings, placements, wires and nodes, against the definition of a layer.
// The experts are a stand-in on the host, y = x * (e + 1) + e: this tests how rows travel.
#include "tests/oracle/strategy.hpp"

#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/physical_experts.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/strategy.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

using oracle::StrategyProblem;

/// How often `step` stopped the host, over all ranks of one context. All ranks call this function together.
std::uint64_t host_syncs_of(Communicator& world, const std::function<void()>& step) {
  world.share("before", {});
  const std::uint64_t before = world.stream().context->counters().host_syncs;
  world.share("begin", {});
  step();
  world.share("end", {});
  const std::uint64_t after = world.stream().context->counters().host_syncs;
  world.share("after", {});
  return after - before;
}

/// Bytes from the ranks of other nodes.
std::uint64_t between_nodes(const Communicator& world, std::int32_t ranks_per_node) {
  std::uint64_t bytes = 0;
  for (std::int32_t peer = 0; peer < world.size(); ++peer)
    if (peer / ranks_per_node != world.rank() / ranks_per_node) bytes += world.bytes_received(peer);
  return bytes;
}

/// Expects each element to differ by at most its bound.
void expect_within(const std::vector<double>& got, const std::vector<double>& expected,
                   const std::vector<double>& error) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - expected[i]), error[i]) << "element " << i << ": " << got[i] << ", " << expected[i];
}

/// This rank's routing as places. A rank without another place for any expert takes the ids as they are.
DeviceTensor places_of(StreamView stream, const StrategyProblem& problem, const DeviceTensor& ids,
                       std::int64_t first_token) {
  const PlacementPlan plan = place_experts(problem.placing);
  EXPECT_EQ(plan.logical_of, problem.expert_at);
  const DeviceTensor standing(stream, DType::i32, {plan.logical(), plan.most_replicas},
                              {plan.physical_of.begin(), plan.physical_of.end()}),
      counts(stream, DType::i32, {plan.logical()}, {plan.replicas.begin(), plan.replicas.end()});
  DeviceTensor physical(stream, DType::i32, {ids.view.shape[0], problem.top_k});
  physical_experts::enqueue(stream, {ids, standing, counts, first_token, physical, {}});
  return physical;
}

/// Tokens that come as codes, for the wires of e4m3.
struct QuantizedTokens {
  DeviceTensor codes, scale;

  QuantizedTokens(StreamView stream, const StrategyProblem& problem, const DeviceTensor& x)
      : codes(stream, DType::f8_e4m3, {x.view.shape[0], problem.hidden}),
        scale(stream, problem.wire == WireFormat::mxfp8 ? DType::u8 : DType::f32,
              {x.view.shape[0], problem.wire == WireFormat::mxfp8 ? (problem.hidden + 31) / 32 : 1}) {
    quantize_groups::Args args;
    args.x = x;
    args.q = codes;
    args.scale = scale;
    if (problem.wire == WireFormat::mxfp8) args.group = 32, args.rule = quantize_groups::ScaleRule::mx_floor;
    quantize_groups::enqueue(stream, args);
  }
  void bring(TokensIn& tokens) const {
    tokens.x = codes;
    tokens.x_scale = scale;
    if (scale.view.dtype == DType::u8)
      tokens.x_group = 32;
    else
      tokens.x_scale = TensorView(scale.view.buffer, DType::f32, {scale.view.shape[0]});
  }
};

/// What experts that sum give back: for each token the sum of its rows, which are weighted already.
std::vector<double> sums_of_tokens(const std::vector<double>& slot_rows, const std::vector<double>& rows,
                                   std::int64_t tokens, std::int64_t hidden) {
  std::vector<double> sums(static_cast<std::size_t>(tokens * hidden));
  const std::size_t slots = tokens == 0 ? 0 : slot_rows.size() / static_cast<std::size_t>(tokens);
  for (std::size_t slot = 0; slot < slot_rows.size(); ++slot)
    for (std::int64_t h = 0; slot_rows[slot] >= 0 && h < hidden; ++h)
      sums[slot / slots * static_cast<std::size_t>(hidden) + static_cast<std::size_t>(h)] +=
          rows[static_cast<std::size_t>(static_cast<std::int64_t>(slot_rows[slot]) * hidden + h)];
  return sums;
}

/// The passes of one rank. The first two use the same strategy object; the third uses one that exchanges on its own
/// queue. For the wires of e4m3 a fourth brings tokens that are codes already. The first pass leaves each tp rank a
/// part of the sums; the second has ids of 64 bits.
void expect_layer(Communicator& world, StrategyKind kind, const StrategyProblem& problem, bool one_context) {
  const ExpertRank rank(world, problem.tp, problem.places(), ExpertSharding::experts, problem.ranks_per_node);
  const StreamView stream = world.stream();
  const std::int64_t hidden = problem.hidden, top_k = problem.top_k;
  const std::int64_t first = problem.first_token(rank.dp.rank()),
                     tokens = problem.tokens[static_cast<std::size_t>(rank.dp.rank())];
  const auto mine = [&](const auto& values, std::int64_t width) {
    return std::vector<double>(values.begin() + first * width, values.begin() + (first + tokens) * width);
  };
  const DeviceTensor x(stream, problem.dtype, {tokens, hidden}, mine(problem.x, hidden)),
      ids(stream, DType::i32, {tokens, top_k}, mine(problem.ids, top_k)),
      weights(stream, DType::f32, {tokens, top_k}, mine(problem.weights, top_k)),
      fault(stream, DType::i32, {4}, {0, 0, 0, 0}), places = places_of(stream, problem, ids, first);
  ASSERT_EQ(places.values(stream), mine(problem.physical, top_k));
  const DeviceTensor wide(stream, DType::i64, {tokens, top_k}, places.values(stream));
  const StrategyProblem::Rows expected = problem.dispatched(kind, world.rank());
  ExpertProblem sizes{hidden, problem.top_k, problem.dtype, problem.wire}, plain{hidden, problem.top_k, problem.dtype};
  sizes.expert_output = plain.expert_output = problem.expert_output;
  const std::unique_ptr<Strategy> on_stream = Strategy::make(kind, rank, sizes),
                                  beside = Strategy::make(kind, rank.beside(), sizes),
                                  as_they_are = Strategy::make(kind, rank, plain);
  const bool e4m3 = problem.wire == WireFormat::fp8 || problem.wire == WireFormat::mxfp8;
  std::optional<QuantizedTokens> codes;
  if (e4m3) codes.emplace(stream, problem, x);
  std::vector<double> before;
  for (int pass = 0; pass < (e4m3 ? 4 : 3); ++pass) {
    Strategy* const strategy = (pass < 2 ? on_stream : pass == 2 ? beside : as_they_are).get();
    TokensIn brought{x, pass == 1 ? wide.view : places.view, weights, fault};
    brought.reduce_results = pass > 0;
    const StrategyProblem::Bytes bytes = problem.received(kind, world.rank(), brought.reduce_results);
    if (pass == 3) codes->bring(brought);
    const std::uint64_t received = world.bytes_received(), crossed = between_nodes(world, problem.ranks_per_node);
    RoutedRows rows;
    const std::uint64_t syncs = host_syncs_of(world, [&] { rows = strategy->dispatch(stream, brought); });

    const auto read = [&](const TensorView& view) {
      std::vector<unsigned char> raw(view.size_bytes());
      read_blocking(stream, view.buffer, raw.data(), raw.size());
      return decode(view.dtype, raw);
    };
    std::vector<double> source = read(rows.x);
    if (rows.x_scale.present()) {
      const std::int64_t group = rows.x_group == 0 ? hidden : rows.x_group, groups = (hidden + group - 1) / group;
      std::vector<double> scale = read(rows.x_scale);
      if (rows.x_scale.dtype == DType::u8)
        for (double& byte : scale) byte = std::ldexp(1.0, static_cast<int>(byte) - 127);  // e8m0
      for (std::size_t i = 0; i < source.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        source[i] *= scale[static_cast<std::size_t>(at / hidden * groups + at % hidden / group)];
      }
    }
    const std::vector<double> index = read(rows.index);
    ASSERT_EQ(read(rows.row_ends), expected.ends);
    const std::size_t valid = expected.experts.size();
    ASSERT_LE(valid, static_cast<std::size_t>(rows.rows));
    std::vector<double> arrived, results(static_cast<std::size_t>(rows.rows * hidden), std::nan(""));
    for (std::size_t j = 0; j < valid; ++j) {
      const auto from = source.begin() + static_cast<std::int64_t>(index[j]) / rows.index_divisor * hidden;
      arrived.insert(arrived.end(), from, from + hidden);
    }
    expect_within(arrived, expected.x, expected.error);
    std::vector<double> weight_of(valid, 1);
    ASSERT_EQ(rows.weights.present(), problem.experts_weight());
    if (problem.experts_weight()) {
      weight_of = read(rows.weights);
      weight_of.resize(valid);
      ASSERT_EQ(weight_of, expected.weights);
    }
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(hidden);
      results[i] = oracle::expert(arrived[i], expected.experts[row]) * weight_of[row];
    }

    std::int64_t returned = rows.rows;
    ASSERT_EQ(rows.slot_rows.present(), problem.experts_sum());
    if (problem.experts_sum()) {
      returned = rows.slot_rows.shape[0];
      results = sums_of_tokens(read(rows.slot_rows), results, returned, hidden);
    }
    const DeviceTensor expert_rows(stream, DType::f32, {returned, hidden}, results),
        out(stream, DType::f32, {tokens, hidden},
            std::vector<double>(static_cast<std::size_t>(tokens * hidden), std::nan("")));
    const std::uint64_t more_syncs = host_syncs_of(world, [&] { strategy->combine(stream, expert_rows, out); });
    if (one_context) {
      EXPECT_EQ(syncs, kind == StrategyKind::all2all_v ? static_cast<std::uint64_t>(world.size()) : 0U);
      EXPECT_EQ(more_syncs, 0U);
    }
    EXPECT_EQ(world.bytes_received() - received, static_cast<std::uint64_t>(bytes.all));
    if (kind == StrategyKind::mc2) {
      EXPECT_EQ(between_nodes(world, problem.ranks_per_node) - crossed,
                static_cast<std::uint64_t>(bytes.between_nodes));
    }
    if (!brought.reduce_results) Communicator(rank.tp).all_reduce(out);
    const std::vector<double> output = out.values(stream);
    expect_within(output, problem.output(rank.dp.rank(), false), problem.output_error(kind, rank.dp.rank()));
    if (problem.is_exact(kind)) {
      EXPECT_EQ(output, problem.output(rank.dp.rank(), true));  // the sums are in a single rank's order
    }
    // Multicast adds the parts of all ranks in one order, and the parts of tp groups (the first pass) in another.
    if (pass > 1 || (pass == 1 && kind != StrategyKind::multicast)) {
      EXPECT_EQ(output, before);
    }
    before = output;
  }
  EXPECT_EQ(fault.values(stream), std::vector<double>(4));
}

/// The strategy of one rank alone, standard and batched.
void expect_local(StreamView stream, const StrategyProblem& problem, bool batched) {
  const std::int64_t tokens = problem.total(), hidden = problem.hidden, top_k = problem.top_k;
  const DeviceTensor x(stream, problem.dtype, {tokens, hidden}, problem.x),
      ids(stream, DType::i32, {tokens, top_k}, {problem.ids.begin(), problem.ids.end()}),
      weights(stream, DType::f32, {tokens, top_k}, problem.weights), out(stream, DType::f32, {tokens, hidden});
  ExpertProblem sizes{hidden, problem.top_k, problem.dtype};
  sizes.batched = batched;
  sizes.expert_output = problem.expert_output;
  const std::unique_ptr<Strategy> strategy = Strategy::make_local(stream, problem.experts, sizes);
  const Buffer memory(*stream.context, strategy->needs(tokens).workspace_bytes);
  expert_sort::enqueue(stream, *strategy->prepare({x, ids, weights, {}}, memory.view()));
  strategy->begin_dispatch();
  const RoutedRows rows = strategy->receive();
  ASSERT_EQ(rows.slot_rows.present(), problem.experts_sum());

  const auto read = [&](const TensorView& view) {
    std::vector<unsigned char> raw(view.size_bytes());
    read_blocking(stream, view.buffer, raw.data(), raw.size());
    return decode(view.dtype, raw);
  };
  const std::vector<double> source = read(rows.x), ends = read(rows.row_ends),
                            index = batched ? std::vector<double>() : read(rows.index),
                            of_row = problem.experts_weight() ? read(rows.weights) : std::vector<double>();
  std::vector<double> results(static_cast<std::size_t>(rows.rows * hidden), std::nan(""));
  for (std::int64_t e = 0, row = 0; e < problem.experts; ++e)
    for (std::int64_t i = 0; row < static_cast<std::int64_t>(ends[static_cast<std::size_t>(e)]); ++row, ++i) {
      const std::int64_t at = batched ? e * rows.rows_per_expert + i : row;
      const auto j = static_cast<std::size_t>(at);
      const std::int64_t from = batched ? at : static_cast<std::int64_t>(index[j]) / rows.index_divisor;
      for (std::int64_t h = 0; h < hidden; ++h)
        results[static_cast<std::size_t>(at * hidden + h)] =
            oracle::expert(source[static_cast<std::size_t>(from * hidden + h)], e) * (of_row.empty() ? 1 : of_row[j]);
    }
  if (problem.experts_sum()) results = sums_of_tokens(read(rows.slot_rows), results, tokens, hidden);
  const DeviceTensor expert_rows(stream, DType::f32, {problem.experts_sum() ? tokens : rows.rows, hidden}, results);
  strategy->combine(stream, expert_rows, out);
  const std::vector<double> expected = problem.output(0, false);
  std::vector<double> error;
  for (const double value : expected) error.push_back(1e-6 * value);
  expect_within(out.values(stream), expected, error);
}

class StrategyTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count) {
    return {count, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, StrategyTest, testing::ValuesIn(settings_with_fake),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(StrategyTest, EveryStrategyIsTheLayer) {
  constexpr std::uint64_t problems = 64;  // times 4 strategies and 4 settings: 1024 cases
  for (std::uint64_t ranks = 1; ranks <= 8; ++ranks) {
    Ranks on = make(static_cast<std::int32_t>(ranks));
    for (std::uint64_t seed = ranks - 1; seed < problems; seed += 8) {
      if (!takes(GetParam(), seed / 8)) continue;
      const StrategyProblem problem(seed);
      for (const StrategyKind kind : kinds)
        on.group.run([&](Communicator& world) {
          SCOPED_TRACE(testing::Message() << name(kind) << ", rank " << world.rank() << ": " << problem.text);
          expect_layer(world, kind, problem, GetParam().places != Ranks::all_platforms);
        });
    }
  }
}

TEST_P(StrategyTest, OneRankAloneIsTheLayer) {
  Ranks on = make(1);
  int summed = 0;
  for (std::uint64_t seed = 0; seed < 96; seed += 8) {
    const StrategyProblem problem(seed);
    SCOPED_TRACE(problem.text);
    summed += problem.experts_sum() ? 1 : 0;
    for (const bool batched : {false, true})
      on.group.run([&](Communicator& world) { expect_local(world.stream(), problem, batched); });
  }
  EXPECT_GT(summed, 2);
}

/// Tokens that chose many experts each, of ordinary width.
TEST(StrategyBytesTest, OverNodesLessCrossesThanWithoutThem) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const StrategyProblem problem(seed);
    if (!problem.over_nodes(StrategyKind::mc2) || problem.ranks_per_node == 1 || problem.total() == 0) continue;
    // Nodes are not meant for rows that have fewer bytes than their ids and weights.
    if (problem.row_bytes() < problem.top_k * 8) continue;
    compared += problem.received(StrategyKind::mc2, 0).between_nodes < problem.flat_mc2(0, true) ? 1 : 0;
    for (std::int32_t rank = 0; rank < problem.ranks; ++rank)
      EXPECT_LE(problem.received(StrategyKind::mc2, rank).between_nodes, problem.flat_mc2(rank, true)) << problem.text;
  }
  EXPECT_GT(compared, 20);
}

TEST(CombineFormTest, SumsAreForHiddenStatesOf16BitsWhoseResultsAreNumbers) {
  for (const WireFormat wire : {WireFormat::none, WireFormat::int8, WireFormat::fp8, WireFormat::mxfp8})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const bool sums = dtype != DType::f32 && wire != WireFormat::int8;
      EXPECT_EQ(combine_form(StrategyKind::mc2, dtype, wire), sums ? CombineForm::partial_sums : CombineForm::rows);
      EXPECT_EQ(combine_form(StrategyKind::all2all_v, dtype, wire), CombineForm::rows);
      EXPECT_EQ(combine_form(StrategyKind::all_gather, dtype, wire), CombineForm::partial_sums);
      EXPECT_EQ(combine_form(StrategyKind::multicast, dtype, wire), CombineForm::partial_sums);
    }
}

}  // namespace
}  // namespace moecl::test
