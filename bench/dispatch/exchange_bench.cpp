// The exchange of ranks in a layer: the dispatch and combine halves of MC2, and all rows of an all_to_all where devices
// reach each other's memory. Rows of DeepSeek-V3, 256 experts, top 8; every token has experts on every rank. Each rank
// has a GPU; where there are fewer GPUs, ranks share the device. Reports the wall time of a chain of steps that all
// ranks do together; with a GPU per rank also device times.
#include <moecl/strategy.hpp>

#include <algorithm>
#include <bit>
#include <memory>

#include "bench/rank_time.hpp"
#include "dispatch/put_window.hpp"
#include "dispatch/strategies/strategy_parts.hpp"
#include "runtime/quotient.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

constexpr std::int64_t hidden = 7168, top_k = 8;
constexpr std::int32_t experts = 256;

std::vector<std::int32_t> balanced_ids(std::int64_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < top_k; ++k)
      ids.push_back(static_cast<std::int32_t>((t + k * (experts / top_k)) % experts));
  return ids;
}

/// Measures chains of `make`'s steps. In a step a rank sends each other rank `token_bytes` for each of its tokens.
template <class Make>
void measure_exchange(benchmark::State& state, std::int64_t token_bytes, Make make) {
  const std::int64_t ranks = state.range(0), tokens = state.range(1);
  const double leaving = static_cast<double>(tokens * (ranks - 1) * token_bytes);
  const auto times = measure_ranks(state, ranks, [&](Communicator& world) { return make(world, tokens); });
  state.counters["GB/s out of a rank"] =
      benchmark::Counter(leaving / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  if (times && times->exchange_us > 0) state.counters["GB/s of the exchange"] = leaving / 1e3 / times->exchange_us;
}

test::DeviceTensor tensor(StreamView on, const std::vector<std::int32_t>& values,
                          std::initializer_list<std::int64_t> shape) {
  return {on, DType::i32, shape, {values.begin(), values.end()}};
}

/// A rank's strategy with its operands. Its dispatch and combine halves can be repeated separately.
struct Mc2Rank {
  StreamView stream;
  test::DeviceTensor x, ids, weights, out;
  std::unique_ptr<Strategy> strategy;
  RoutedRows routed;
  Buffer expert_rows;

  Mc2Rank(Communicator& world, std::int64_t tokens)
      : stream(world.stream()),
        x(world.stream(), DType::bf16, {tokens, hidden}),
        ids(tensor(world.stream(), balanced_ids(tokens), {tokens, top_k})),
        weights(world.stream(), DType::f32, {tokens, top_k}, std::vector<double>(tokens * top_k, 0.125)),
        out(world.stream(), DType::f32, {tokens, hidden}),
        strategy(Strategy::make(StrategyKind::mc2, ExpertRank(world, 1, experts),
                                {hidden, top_k, DType::bf16, WireFormat::none})) {
    dispatch();
    expert_rows = Buffer(*world.stream().context, bytes_of(DType::f32, routed.rows, hidden));
  }
  void dispatch() { routed = strategy->dispatch(stream, {x, ids, weights, {}}); }
  void combine() { strategy->combine(stream, TensorView(expert_rows.view(), DType::f32, {routed.rows, hidden}), out); }
};

void mc2_dispatch(benchmark::State& state) {
  measure_exchange(state, hidden * 2, [](Communicator& world, std::int64_t tokens) {
    const auto rank = std::make_shared<Mc2Rank>(world, tokens);
    return std::function<void()>([rank] { rank->dispatch(); });
  });
}

void mc2_combine(benchmark::State& state) {
  measure_exchange(state, hidden * 4, [](Communicator& world, std::int64_t tokens) {
    const auto rank = std::make_shared<Mc2Rank>(world, tokens);
    return std::function<void()>([rank] { rank->combine(); });
  });
}

/// Sends the same bytes as an all_to_all of T * K rows; each row is a token of one expert. Windows have room for rows
/// of one rank only, so more rows than they hold take several steps.
struct PutRows {
  Communicator world;
  std::int64_t rows, steps;
  std::uint64_t ids_at, codes_at;
  test::DeviceTensor x, ids, return_rows;
  std::unique_ptr<PutWindow> window;

  PutRows(const Communicator& ranks, std::int64_t all_rows)
      : world(ranks),
        rows(std::min(all_rows, fitting(ranks))),
        steps(quotient_up(all_rows, rows)),
        ids_at(PutWindow::begin(ranks.size())),
        codes_at(ids_at + bytes_of(DType::i32, ranks.size(), rows)),
        x(ranks.stream(), DType::bf16, {rows, hidden}),
        ids(tensor(ranks.stream(), dealt_out(rows, ranks.size()), {rows, 1})),
        return_rows(ranks.stream(), DType::i32, {rows}) {
    window = std::make_unique<PutWindow>(ranks, codes_at + bytes_of(DType::bf16, ranks.size() * rows, hidden));
  }
  /// The rows that fit the window, rounded down to a power of two.
  static std::int64_t fitting(const Communicator& ranks) {
    if (const std::string why = PutWindow::reject(ranks); !why.empty()) throw std::runtime_error(why);
    const auto row = static_cast<std::uint64_t>(ranks.size()) * (hidden * 2 + 4);
    return static_cast<std::int64_t>(std::bit_floor((PutWindow::max_bytes(ranks) - 4096) / row));
  }
  static std::vector<std::int32_t> dealt_out(std::int64_t rows, std::int32_t ranks) {
    std::vector<std::int32_t> to;
    for (std::int64_t row = 0; row < rows; ++row) to.push_back(static_cast<std::int32_t>(row % ranks));
    return to;
  }
  void put() {
    for (std::int64_t step = 0; step < steps; ++step) {
      window->next();
      window_put::Dispatch put;
      put.ids = ids;
      put.codes = x;
      put.experts = world.size();
      put.return_rows = return_rows;
      put.ids_at = ids_at;
      put.to = window->windows();
      put.to.capacity = rows;
      put.to.codes_at = codes_at;
      window_put::enqueue(world.stream(), put);
      window->arrive([](std::int32_t /*peer*/) { return 0; });
    }
  }
};

void put_rows(benchmark::State& state) {
  // Each rank gets K / R of the K rows of a token.
  measure_exchange(state, top_k / state.range(0) * hidden * 2, [](Communicator& world, std::int64_t tokens) {
    const auto rank = std::make_shared<PutRows>(world, tokens * top_k);
    return std::function<void()>([rank] { rank->put(); });
  });
}

void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"ranks", "T"})->UseManualTime();
  for (const std::int64_t ranks : {2, 4})
    for (const std::int64_t tokens : {16, 128, 4096}) of->Args({ranks, tokens});
}
BENCHMARK(mc2_dispatch)->Name("exchange/mc2_dispatch/bf16/E:256/K:8/H:7168")->Apply(sizes);
BENCHMARK(mc2_combine)->Name("exchange/mc2_combine/f32/E:256/K:8/H:7168")->Apply(sizes);
BENCHMARK(put_rows)->Name("exchange/window_put_rows/bf16/K:8/H:7168")->Apply(sizes);

}  // namespace
}  // namespace moecl::bench
