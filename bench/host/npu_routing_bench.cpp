#include "bench/host/npu_call.hpp"
#include "host/npu/describe_routing.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Qwen3-30B-A3B: 128 experts, 8 per token, hidden 2048.
constexpr std::int64_t experts = 128, top_k = 8, hidden = 2048;

std::vector<double> floats(std::int64_t count) { return test::normal(static_cast<std::size_t>(count), 1); }

/// One number per slot, scattered evenly over [0, below).
std::vector<double> scattered(std::int64_t count, std::int64_t below) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * 7919 % below));
  return values;
}

void init_routing(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), slots = tokens * top_k;
  const test::DeviceTensor x(stream(), DType::bf16, {tokens, hidden}, floats(tokens * hidden)),
      row_idx(stream(), DType::i32, {tokens, top_k}, scattered(slots, slots)),
      ids(stream(), DType::i32, {tokens, top_k}, scattered(slots, experts));
  npu::MoeInitRoutingArgs args;
  args.x = x;
  args.row_idx = row_idx;
  args.expert_idx = ids;
  args.active_num = tokens;
  measure_operator(state, args);
}
BENCHMARK(init_routing)->Name("npu_moe_init_routing/bf16/K:8/H:2048")->ArgName("T")->Arg(16)->Arg(512)->UseManualTime();

/// quant_mode -1 moves bf16 rows; 1 quantizes them to int8.
void init_routing_v2(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), slots = tokens * top_k;
  const test::DeviceTensor x(stream(), DType::bf16, {tokens, hidden}, floats(tokens * hidden)),
      ids(stream(), DType::i32, {tokens, top_k}, scattered(slots, experts));
  npu::MoeInitRoutingV2Args args;
  args.x = x;
  args.expert_idx = ids;
  args.expert_num = experts;
  args.expert_tokens_num_flag = true;
  args.quant_mode = state.range(1);
  measure_operator(state, args);
}
BENCHMARK(init_routing_v2)
    ->Name("npu_moe_init_routing_v2/bf16/E:128/K:8/H:2048")
    ->ArgNames({"T", "quant_mode"})
    ->ArgsProduct({{16, 512}, {-1, 1}})
    ->UseManualTime();

void compute_expert_tokens(benchmark::State& state) {
  const std::int64_t slots = state.range(0) * top_k;
  std::vector<double> ids(static_cast<std::size_t>(slots));
  for (std::int64_t i = 0; i < slots; ++i) ids[static_cast<std::size_t>(i)] = static_cast<double>(i * experts / slots);
  const test::DeviceTensor sorted(stream(), DType::i32, {slots}, ids);
  npu::MoeComputeExpertTokensArgs args;
  args.sorted_expert_for_source_row = sorted;
  args.num_expert = experts;
  measure_operator(state, args);
}
BENCHMARK(compute_expert_tokens)
    ->Name("npu_moe_compute_expert_tokens/E:128/K:8")
    ->ArgName("T")
    ->Arg(512)
    ->UseManualTime();

void token_permute(benchmark::State& state) {
  const std::int64_t tokens = state.range(0);
  const test::DeviceTensor x(stream(), DType::bf16, {tokens, hidden}, floats(tokens * hidden)),
      ids(stream(), DType::i32, {tokens, top_k}, scattered(tokens * top_k, experts));
  npu::MoeTokenPermuteArgs args;
  args.tokens = x;
  args.indices = ids;
  measure_operator(state, args);
}
BENCHMARK(token_permute)
    ->Name("npu_moe_token_permute/bf16/K:8/H:2048")
    ->ArgName("T")
    ->Arg(16)
    ->Arg(512)
    ->UseManualTime();

/// Padded mode adds each row to its token; the other mode gathers the rows of a token.
void token_unpermute(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), slots = tokens * top_k;
  const bool padded = state.range(1) != 0;
  const test::DeviceTensor rows(stream(), DType::bf16, {slots, hidden}, floats(slots * hidden)),
      index(stream(), DType::i32, {slots}, scattered(slots, padded ? tokens : slots)),
      probs(stream(), DType::f32, {tokens, top_k}, floats(slots));
  npu::MoeTokenUnpermuteArgs args;
  args.permuted_tokens = rows;
  args.sorted_indices = index;
  args.probs = probs;
  args.padded_mode = padded;
  if (padded) args.restore_shape = {tokens, hidden};
  measure_operator(state, args);
}
BENCHMARK(token_unpermute)
    ->Name("npu_moe_token_unpermute/bf16/K:8/H:2048")
    ->ArgNames({"T", "padded"})
    ->ArgsProduct({{16, 512}, {0, 1}})
    ->UseManualTime();

/// 16 ranks with 8 local experts each.
void re_routing(benchmark::State& state) {
  const std::int64_t ranks = 16, local_experts = experts / ranks, rows = state.range(0) * top_k;
  const test::DeviceTensor tokens(stream(), DType::bf16, {rows, hidden}, floats(rows * hidden)),
      counts(stream(), DType::i64, {ranks, local_experts},
             std::vector<double>(experts, static_cast<double>(rows / experts)));
  npu::MoeReRoutingArgs args;
  args.tokens = tokens;
  args.expert_token_num_per_rank = counts;
  measure_operator(state, args);
}
BENCHMARK(re_routing)
    ->Name("npu_moe_re_routing/bf16/R:16/E:8/H:2048")
    ->ArgName("T")
    ->Arg(16)
    ->Arg(512)
    ->UseManualTime();

void finalize_routing(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), slots = tokens * top_k;
  const test::DeviceTensor rows(stream(), DType::bf16, {slots, hidden}, floats(slots * hidden)),
      index(stream(), DType::i32, {slots}, scattered(slots, slots)),
      ids(stream(), DType::i32, {tokens, top_k}, scattered(slots, experts)),
      scales(stream(), DType::bf16, {tokens, top_k}, floats(slots)),
      bias(stream(), DType::bf16, {experts, hidden}, floats(experts * hidden)),
      skip(stream(), DType::bf16, {tokens, hidden}, floats(tokens * hidden));
  npu::MoeFinalizeRoutingArgs args;
  args.expanded_permuted_rows = rows;
  args.skip1 = skip;
  args.bias = bias;
  args.scales = scales;
  args.expanded_src_to_dst_row = index;
  args.export_for_source_row = ids;
  measure_operator(state, args);
}
BENCHMARK(finalize_routing)
    ->Name("npu_moe_finalize_routing/bf16/K:8/H:2048")
    ->ArgName("T")
    ->Arg(16)
    ->Arg(512)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
