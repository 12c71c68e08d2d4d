// A layer like Qwen3's whose memory has slots for a quarter of its experts: claiming slots, and fetching experts.
#include <moecl/context.hpp>

#include "bench/device_time.hpp"
#include "runtime/pinned_memory.hpp"
#include "tests/cases/expert_slots.hpp"

namespace moecl::bench {
namespace {

/// All experts that have rows are in slots already.
void claim_slots(benchmark::State& state) {
  constexpr std::int64_t experts = 128, slots = 32, used = 8;
  const test::ExpertSlotsMemory memory(stream(), experts, slots, 64);
  std::vector<bool> of(experts);
  for (std::size_t e = 0; e < used; ++e) of[e * 16] = true;
  const test::DeviceTensor row_ends(stream(), DType::i32, {experts}, test::ends_of(of));
  expert_slots::Claim args = memory.claim();
  args.row_ends = row_ends;
  measure(state, cost(args), [&] { expert_slots::enqueue(stream(), args); });
}
BENCHMARK(claim_slots)->Name("expert_slots/claim/E:128/S:32")->UseManualTime();

/// Fetches a number of experts of 1 MiB from host memory.
void fetch_experts(benchmark::State& state) {
  constexpr std::int64_t experts = 128, slots = 32, used = 8, bytes = 1 << 20;
  const test::ExpertSlotsMemory memory(stream(), experts, slots, bytes);
  const Buffer home = host_buffer(*stream().context, static_cast<std::uint64_t>(experts * bytes));
  enqueue_fill(stream(), home.view(), 0x01010101);
  std::vector<double> list(1 + 2 * slots);
  list[0] = static_cast<double>(state.range(0));
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    list[static_cast<std::size_t>(1 + 2 * i)] = static_cast<double>(i * 13);
    list[static_cast<std::size_t>(2 + 2 * i)] = static_cast<double>(i);
  }
  const test::DeviceTensor fetches(stream(), DType::i32, {1 + 2 * slots}, list);
  expert_slots::Fetch args = memory.fetch(used);
  args.from = TensorView(home.view(), DType::u8, {experts, bytes});
  args.fetches = fetches;
  measure(state, {2 * static_cast<std::uint64_t>(state.range(0) * bytes), 0},
          [&] { expert_slots::enqueue(stream(), args); });
}
BENCHMARK(fetch_experts)->Name("expert_slots/fetch/1MiB")->ArgName("missing")->Arg(0)->Arg(1)->Arg(8)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
