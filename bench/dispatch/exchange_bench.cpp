// What ranks exchange in a layer: MC2's halves, and the kernels beneath them where devices reach each other's memory.
// DeepSeek-V3's rows, 256 experts, top 8, every rank gets as many. A GPU a rank; where there are fewer, ranks share the
// device. Wall time of a chain of steps that all ranks do together; with a GPU a rank also device times.
#include <moecl/strategy.hpp>

#include <algorithm>
#include <memory>

#include "bench/rank_time.hpp"
#include "dispatch/put_window.hpp"
#include "dispatch/strategy_parts.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/oracle/expert_sort.hpp"

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

test::DeviceTensor tensor(StreamView on, const std::vector<std::int32_t>& values,
                          std::initializer_list<std::int64_t> shape) {
  return {on, DType::i32, shape, {values.begin(), values.end()}};
}

/// A chain of `make`'s steps, in each of which a rank has top_k rows of `row_bytes` for each of its tokens, as many for
/// every rank.
template <class Make>
void measure_exchange(benchmark::State& state, std::int64_t row_bytes, Make make) {
  const std::int64_t ranks = state.range(0), tokens = state.range(1);
  const double leaving = static_cast<double>(tokens * top_k * row_bytes / ranks * (ranks - 1));
  const auto times = measure_ranks(state, ranks, [&](Communicator& world) { return make(world, tokens); });
  state.counters["GB/s out of a rank"] =
      benchmark::Counter(leaving / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  if (times && times->exchange_us > 0) state.counters["GB/s of the exchange"] = leaving / 1e3 / times->exchange_us;
}

/// A rank's strategy with what it needs; its halves can be repeated alone.
struct Mc2Rank {
  test::DeviceTensor x, ids, weights, out;
  std::unique_ptr<Strategy> strategy;
  RoutedRows routed;
  Buffer expert_rows;

  Mc2Rank(Communicator& world, std::int64_t tokens)
      : x(world.stream(), DType::bf16, {tokens, hidden}),
        ids(tensor(world.stream(), balanced_ids(tokens), {tokens, top_k})),
        weights(world.stream(), DType::f32, {tokens, top_k}, std::vector<double>(tokens * top_k, 0.125)),
        out(world.stream(), DType::f32, {tokens, hidden}),
        strategy(Strategy::make(StrategyKind::mc2, ExpertRank(world, 1, experts),
                                {hidden, top_k, DType::bf16, WireFormat::none})) {
    dispatch();
    expert_rows = Buffer(*world.stream().context, bytes_of(DType::f32, routed.rows, hidden));
  }
  void dispatch() { routed = strategy->dispatch({x, ids, weights, {}}); }
  void combine() { strategy->combine(TensorView(expert_rows.view(), DType::f32, {routed.rows, hidden}), out); }
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

/// One kernel that puts and one that waits, over slabs that hold just what is sent: the exchange itself.
struct PutRank {
  static constexpr std::int64_t most_tokens = 2048;  ///< of one step; more take several

  Communicator world;
  std::int64_t tokens, slab;
  std::uint64_t ends_at, codes_at;
  test::DeviceTensor x, row_ends, sorted_slots, places, received_ends;
  std::unique_ptr<PutWindow> window;
  int steps;

  PutRank(const Communicator& ranks, std::int64_t all_tokens, bool slots, const test::oracle::SortedSlots& sort)
      : world(ranks),
        tokens(std::min(all_tokens, most_tokens)),
        slab(tokens * top_k / ranks.size()),
        ends_at(PutWindow::begin(ranks.size())),
        codes_at(ends_at + bytes_of(DType::i32, ranks.size(), experts)),
        x(ranks.stream(), DType::bf16, {slots ? tokens * top_k : tokens, hidden}),
        row_ends(tensor(ranks.stream(), sort.row_ends, {experts})),
        sorted_slots(tensor(ranks.stream(), sort.sorted_slots, {tokens * top_k})),
        places(tensor(ranks.stream(), counted(tokens * top_k), {tokens * top_k})),
        received_ends(tensor(ranks.stream(), {static_cast<std::int32_t>(tokens * top_k)}, {1})),
        steps(static_cast<int>((all_tokens + most_tokens - 1) / most_tokens)) {
    const std::string why = PutWindow::reject(ranks);
    if (!why.empty()) throw std::runtime_error(why);
    window = std::make_unique<PutWindow>(ranks, codes_at + bytes_of(DType::bf16, tokens * top_k, hidden));
  }
  static std::vector<std::int32_t> counted(std::int64_t count) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
    return numbers;
  }
  window_put::Windows to() const {
    window_put::Windows windows = window->windows();
    windows.capacity = slab;
    windows.codes_at = codes_at;
    return windows;
  }
  void dispatch() {
    for (int step = 0; step < steps; ++step) {
      window->next();
      window_put::enqueue(world.stream(), window_put::Dispatch{row_ends, sorted_slots, top_k, x, {}, ends_at, to()});
      window->arrive(0, {});
    }
  }
  void combine() {
    for (int step = 0; step < steps; ++step) {
      window->next();
      window_put::enqueue(world.stream(), window_put::Combine{received_ends, places, x, {}, to()});
      window->arrive(0, {});
    }
  }
};

std::shared_ptr<PutRank> put_rank(const Communicator& world, std::int64_t tokens, bool slots) {
  const std::vector<std::int32_t> ids = balanced_ids(std::min(tokens, PutRank::most_tokens));
  return std::make_shared<PutRank>(world, tokens, slots, test::oracle::expert_sort(ids, 0, experts, experts, 0));
}

void put_dispatch(benchmark::State& state) {
  measure_exchange(state, hidden * 2, [](Communicator& world, std::int64_t tokens) {
    const auto rank = put_rank(world, tokens, false);
    return std::function<void()>([rank] { rank->dispatch(); });
  });
}

void put_combine(benchmark::State& state) {
  measure_exchange(state, hidden * 2, [](Communicator& world, std::int64_t tokens) {
    const auto rank = put_rank(world, tokens, true);
    return std::function<void()>([rank] { rank->combine(); });
  });
}

void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"ranks", "T"})->UseManualTime();
  for (const std::int64_t ranks : {2, 4})
    for (const std::int64_t tokens : {16, 128, 4096}) of->Args({ranks, tokens});
}
BENCHMARK(mc2_dispatch)->Name("exchange/mc2_dispatch/bf16/E:256/K:8/H:7168")->Apply(sizes);
BENCHMARK(mc2_combine)->Name("exchange/mc2_combine/f32/E:256/K:8/H:7168")->Apply(sizes);
BENCHMARK(put_dispatch)->Name("exchange/window_put_dispatch/bf16/E:256/K:8/H:7168")->Apply(sizes);
BENCHMARK(put_combine)->Name("exchange/window_put_combine/bf16/E:256/K:8/H:7168")->Apply(sizes);

}  // namespace
}  // namespace moecl::bench
