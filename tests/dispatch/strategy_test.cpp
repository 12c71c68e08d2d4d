// Every strategy over random groups, shapes and routings against what a layer is by definition. The experts are a
// stand-in on the host, y = x * (e + 1) + e: this tests how rows travel.
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/strategy.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/dispatch/ranks.hpp"

namespace moecl::test {
namespace {

constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

double f32(double value) { return static_cast<float>(value); }
double expert(double x, std::int64_t e) { return f32(x * static_cast<double>(e + 1) + static_cast<double>(e)); }
/// Entries of share `index` of `total`, the remainder to the first shares.
std::int64_t share(std::int64_t total, std::int64_t shares, std::int64_t index) {
  return total / shares + (index < total % shares ? 1 : 0);
}
std::int64_t begin_of(std::int64_t total, std::int64_t shares, std::int64_t index) {
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < index; ++i) begin += share(total, shares, i);
  return begin;
}

/// The tokens of all dp ranks, one after the other, and what is to become of them.
struct Problem {
  std::int32_t ranks, tp, experts, top_k;
  std::int64_t hidden;
  DType dtype;
  std::vector<std::int64_t> tokens;  ///< of each dp rank
  std::vector<double> x, weights;    ///< [T, H], [T, K]
  std::vector<std::int32_t> ids;     ///< [T, K]
  std::string text;

  explicit Problem(std::uint64_t seed);

  std::int64_t total() const { return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}); }
  std::int64_t first_token(std::int32_t dp_rank) const {
    return std::accumulate(tokens.begin(), tokens.begin() + dp_rank, std::int64_t{0});
  }
  /// Tokens of which an ep rank speaks.
  std::int64_t own_tokens(std::int32_t rank) const {
    return share(tokens[static_cast<std::size_t>(rank / tp)], tp, rank % tp);
  }
  std::int64_t id(std::int64_t token, std::int64_t k) const { return ids[static_cast<std::size_t>(token * top_k + k)]; }

  struct Rows {
    std::vector<double> ends, x;
    std::vector<std::int64_t> experts;
  };
  /// What a rank's experts get, in the order expert, source rank, token: shares of a tp group are consecutive, so that
  /// is expert, token of all.
  Rows dispatched(std::int32_t rank) const;
  /// [T, H] of a dp rank: k ascending; in f32 steps, or in double precision.
  std::vector<double> output(std::int32_t dp_rank, bool in_f32) const;
  /// What `rank` receives in both halves, from each strategy's description in dispatch/STRATEGIES.md.
  std::uint64_t bytes_received(StrategyKind kind, std::int32_t rank) const;
};

Problem::Problem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  ranks = static_cast<std::int32_t>(seed % 8 + 1);
  do tp = static_cast<std::int32_t>(in(1, ranks));
  while (ranks % tp != 0);
  experts = static_cast<std::int32_t>(in(1, 20));  // often fewer than ranks, mostly uneven
  top_k = static_cast<std::int32_t>(in(1, std::min(experts, 6)));
  hidden = in(1, 40);
  dtype = in(0, 2) == 0 ? DType::bf16 : DType::f32;
  const std::int64_t most = in(0, 4) == 0 ? 0 : 12;
  for (std::int32_t d = 0; d < ranks / tp; ++d) tokens.push_back(in(0, 3) == 0 ? 0 : in(0, most));
  const std::int64_t skew = in(0, 3), chosen = in(0, experts - 1), avoided = in(0, ranks - 1);
  const std::int64_t avoided_begin = begin_of(experts, ranks, avoided),
                     avoided_end = avoided_begin + share(experts, ranks, avoided);
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t t = 0; t < total(); ++t) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::int64_t k = 0; k < top_k; ++k) {
      std::int32_t e = order[static_cast<std::size_t>(k)];
      if (skew == 1) e = k == 0 ? static_cast<std::int32_t>(chosen) : -1;  // all tokens to one expert
      if (skew == 2 && e >= avoided_begin && e < avoided_end) e = -1;      // none to one rank
      if (skew == 3 && in(0, 2) == 0) e = -1;                              // no expert here and there
      ids.push_back(e);
    }
  }
  // Positive values do not cancel: sums in any order differ by roundings only.
  std::uniform_real_distribution<double> value(0.5, 1.5);
  for (std::int64_t i = 0; i < total() * hidden; ++i) x.push_back(value(random));
  for (std::int64_t i = 0; i < total() * top_k; ++i) weights.push_back(f32(value(random)));
  x = rounded(dtype, x);
  text = testing::PrintToString(tokens) + " tokens, tp " + std::to_string(tp) + ", " + std::to_string(ranks) +
         " ranks, " + std::to_string(experts) + " experts, top " + std::to_string(top_k) + ", hidden " +
         std::to_string(hidden) + ", " + name(dtype) + ", skew " + std::to_string(skew) + ", seed " +
         std::to_string(seed);
}

Problem::Rows Problem::dispatched(std::int32_t rank) const {
  Rows rows;
  const std::int64_t first = begin_of(experts, ranks, rank);
  for (std::int64_t e = first; e < first + share(experts, ranks, rank); ++e) {
    for (std::int64_t t = 0; t < total(); ++t)
      for (std::int64_t k = 0; k < top_k; ++k)
        if (id(t, k) == e) {
          rows.x.insert(rows.x.end(), x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
          rows.experts.push_back(e);
        }
    rows.ends.push_back(static_cast<double>(rows.experts.size()));
  }
  if (rows.ends.empty()) rows.ends.push_back(0);  // a rank without experts has an empty one
  return rows;
}

std::vector<double> Problem::output(std::int32_t dp_rank, bool in_f32) const {
  const auto step = [&](double value) { return in_f32 ? f32(value) : value; };
  std::vector<double> out;
  const std::int64_t first = first_token(dp_rank);
  for (std::int64_t t = first; t < first + tokens[static_cast<std::size_t>(dp_rank)]; ++t)
    for (std::int64_t h = 0; h < hidden; ++h) {
      double sum = 0;
      for (std::int64_t k = 0; k < top_k; ++k)
        if (id(t, k) >= 0)
          sum = step(sum + step(weights[static_cast<std::size_t>(t * top_k + k)] *
                                expert(x[static_cast<std::size_t>(t * hidden + h)], id(t, k))));
      out.push_back(sum);
    }
  return out;
}

std::uint64_t Problem::bytes_received(StrategyKind kind, std::int32_t rank) const {
  const std::int64_t row = hidden * static_cast<std::int64_t>(size_bytes(dtype)), sum_row = hidden * 4;
  const std::int64_t mine = own_tokens(rank), of_group = tokens[static_cast<std::size_t>(rank / tp)];
  const std::int64_t others_in_group = (of_group - mine) * sum_row, counts = (ranks - 1) * experts * 4;
  std::int64_t bytes = 0;
  if (kind == StrategyKind::mc2) {
    const std::int64_t most = share(*std::max_element(tokens.begin(), tokens.end()), tp, 0);
    const std::int64_t capacity = most * std::min<std::int64_t>(top_k, share(experts, ranks, 0));
    bytes = counts + (ranks - 1) * capacity * (row + sum_row) + others_in_group;
  } else if (kind == StrategyKind::all2all_v) {
    const auto owner = [&](std::int64_t e) {
      std::int32_t r = 0;
      while (e >= begin_of(experts, ranks, r) + share(experts, ranks, r)) ++r;
      return r;
    };
    std::int64_t arriving = 0, returning = 0;
    for (std::int32_t source = 0; source < ranks; ++source) {
      const std::int64_t begin =
          first_token(source / tp) + begin_of(tokens[static_cast<std::size_t>(source / tp)], tp, source % tp);
      for (std::int64_t t = begin; t < begin + own_tokens(source); ++t)
        for (std::int64_t k = 0; k < top_k; ++k) {
          if (id(t, k) < 0) continue;
          const std::int32_t target = owner(id(t, k));
          arriving += target == rank && source != rank ? 1 : 0;
          returning += target != rank && source == rank ? 1 : 0;
        }
    }
    bytes = counts + arriving * row + returning * sum_row + others_in_group;
  } else {
    bytes = (total() - of_group) * (row + top_k * 8);
    if (kind == StrategyKind::all_gather) {
      bytes += (ranks / tp - 1) * of_group * sum_row + (tp - 1) * mine * sum_row + others_in_group;
    } else {
      const std::int64_t reduced = share(total(), ranks, rank);
      bytes += (ranks - 1) * reduced * sum_row + (total() - reduced) * sum_row;
    }
  }
  return static_cast<std::uint64_t>(bytes);
}

/// Calls of `step` that stopped the host, of all ranks of one context; every rank calls this together.
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

/// One rank of two passes through the same strategy object, and one through another that exchanges on its own queue.
void expect_layer(Communicator& world, StrategyKind kind, const Problem& problem, bool one_context) {
  const ExpertRank rank(world, problem.tp, problem.experts);
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
      fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  const Problem::Rows expected = problem.dispatched(world.rank());
  const ExpertProblem sizes{hidden, problem.top_k, problem.dtype};
  const std::unique_ptr<Strategy> on_stream = Strategy::make(kind, rank, sizes),
                                  beside = Strategy::make(kind, rank.beside(), sizes);
  std::vector<double> before;
  for (int pass = 0; pass < 3; ++pass) {
    Strategy* const strategy = (pass < 2 ? on_stream : beside).get();
    const std::uint64_t received = world.bytes_received();
    RoutedRows rows;
    const std::uint64_t syncs = host_syncs_of(world, [&] { rows = strategy->dispatch({x, ids, weights, fault}); });

    const auto read = [&](const TensorView& view) {
      std::vector<unsigned char> bytes(view.size_bytes());
      read_blocking(stream, view.buffer, bytes.data(), bytes.size());
      return decode(view.dtype, bytes);
    };
    const std::vector<double> source = read(rows.x), index = read(rows.index);
    ASSERT_EQ(read(rows.row_ends), expected.ends);
    const std::size_t valid = expected.experts.size();
    ASSERT_LE(valid, static_cast<std::size_t>(rows.rows));
    std::vector<double> arrived, results(static_cast<std::size_t>(rows.rows * hidden), std::nan(""));
    for (std::size_t j = 0; j < valid; ++j) {
      const auto from = source.begin() + static_cast<std::int64_t>(index[j]) / rows.index_divisor * hidden;
      arrived.insert(arrived.end(), from, from + hidden);
    }
    ASSERT_EQ(arrived, expected.x);
    for (std::size_t i = 0; i < arrived.size(); ++i)
      results[i] = expert(arrived[i], expected.experts[i / static_cast<std::size_t>(hidden)]);

    const DeviceTensor expert_rows(stream, DType::f32, {rows.rows, hidden}, results),
        out(stream, DType::f32, {tokens, hidden},
            std::vector<double>(static_cast<std::size_t>(tokens * hidden), std::nan("")));
    const std::uint64_t more_syncs = host_syncs_of(world, [&] { strategy->combine(expert_rows, out); });
    if (one_context) {
      EXPECT_EQ(syncs, kind == StrategyKind::all2all_v ? static_cast<std::uint64_t>(world.size()) : 0U);
      EXPECT_EQ(more_syncs, 0U);
    }
    EXPECT_EQ(world.bytes_received() - received, problem.bytes_received(kind, world.rank()));
    const std::vector<double> output = out.values(stream);
    EXPECT_LE(relative_error(output, problem.output(rank.dp.rank(), false)), 1e-6);
    if (kind == StrategyKind::mc2 || kind == StrategyKind::all2all_v) {
      EXPECT_EQ(output, problem.output(rank.dp.rank(), true));  // the one order of sums that a single rank has
    }
    if (pass > 0) {
      EXPECT_EQ(output, before);
    }
    before = output;
  }
  EXPECT_EQ(fault.values(stream), std::vector<double>(4));
}

class StrategyTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count) {
    return {count, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, StrategyTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(StrategyTest, EveryStrategyIsTheLayer) {
  constexpr std::uint64_t problems = 40;  // times 4 strategies and 4 settings: 640 cases
  for (std::uint64_t ranks = 1; ranks <= 8; ++ranks) {
    Ranks on = make(static_cast<std::int32_t>(ranks));
    for (std::uint64_t seed = ranks - 1; seed < problems; seed += 8) {
      const Problem problem(seed);
      for (const StrategyKind kind : kinds)
        on.group.run([&](Communicator& world) {
          SCOPED_TRACE(testing::Message() << name(kind) << ", rank " << world.rank() << ": " << problem.text);
          expect_layer(world, kind, problem, GetParam().places != Ranks::all_platforms);
        });
    }
  }
}

}  // namespace
}  // namespace moecl::test
