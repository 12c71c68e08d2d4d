#include "tests/oracle/npu_routing.hpp"

#include "host/npu/describe_routing.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t tokens = 5, top_k = 2, hidden = 17, slots = tokens * top_k;

std::vector<double> of(const oracle::Ints& values) { return {values.begin(), values.end()}; }

/// 0 if every output is the expected one.
double difference(const std::vector<std::vector<double>>& got, const std::vector<oracle::Tensor>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (got.at(i) != expected[i].values) return 1;
  return 0;
}

}  // namespace

std::vector<SelfTestResult> self_test_npu_routing(StreamView stream) {
  const oracle::Matrix x{rounded(DType::bf16, normal(tokens * hidden, 1)), hidden},
      rows{rounded(DType::f32, normal(slots * hidden, 2)), hidden};
  const std::vector<double> probs = rounded(DType::f32, normal(slots, 3));
  const oracle::Ints ids = {3, 1, 0, 3, 3, 2, 1, 0, 0, 3}, columns = {0, 5, 1, 6, 2, 7, 3, 8, 4, 9},
                     places = {4, 9, 1, 0, 3, 8, 2, 5, 7, 6}, sorted_ids = {0, 0, 0, 1, 1, 2, 3, 3, 3, 3};
  const DeviceTensor device_x(stream, DType::bf16, {tokens, hidden}, x.values),
      device_rows(stream, DType::f32, {slots, hidden}, rows.values),
      device_probs(stream, DType::f32, {tokens, top_k}, probs),
      device_ids(stream, DType::i32, {tokens, top_k}, of(ids)),
      device_columns(stream, DType::i32, {tokens, top_k}, of(columns)),
      device_places(stream, DType::i32, {slots}, of(places)),
      device_sorted(stream, DType::i32, {slots}, of(sorted_ids)),
      device_counts(stream, DType::i32, {2, 2}, {3, 0, 1, 6});
  std::vector<SelfTestResult> results;
  const auto add = [&](const char* op, const char* shape, double error, double tolerance = 0) {
    results.push_back({op, "", shape, error, tolerance});
  };

  npu::MoeInitRoutingArgs routing;
  routing.x = device_x;
  routing.row_idx = device_columns;
  routing.expert_idx = device_ids;
  routing.active_num = tokens;
  add("npu_moe_init_routing", "bf16[5, 17] top 2",
      difference(call_operator(stream, routing), oracle::moe_init_routing(x, columns, ids, tokens)));

  npu::MoeInitRoutingV2Args routing_v2;
  routing_v2.x = device_x;
  routing_v2.expert_idx = device_ids;
  routing_v2.expert_num = 4;
  routing_v2.expert_tokens_num_flag = true;
  oracle::InitRoutingV2 in;
  in.x = x;
  in.expert_idx = ids;
  in.top_k = top_k;
  in.expert_num = in.end = 4;
  add("npu_moe_init_routing_v2", "bf16[5, 17] top 2",
      difference(call_operator(stream, routing_v2), oracle::moe_init_routing_v2(in)));

  npu::MoeComputeExpertTokensArgs counts;
  counts.sorted_expert_for_source_row = device_sorted;
  counts.num_expert = 4;
  add("npu_moe_compute_expert_tokens", "i32[10]",
      difference(call_operator(stream, counts), {oracle::moe_compute_expert_tokens(sorted_ids, 4)}));

  npu::MoeTokenPermuteArgs permute;
  permute.tokens = device_x;
  permute.indices = device_ids;
  add("npu_moe_token_permute", "bf16[5, 17] top 2",
      difference(call_operator(stream, permute), oracle::moe_token_permute(x, ids, slots)));

  npu::MoeTokenUnpermuteArgs unpermute;
  unpermute.permuted_tokens = device_rows;
  unpermute.sorted_indices = device_places;
  unpermute.probs = device_probs;
  add("npu_moe_token_unpermute", "f32[10, 17] top 2",
      difference(call_operator(stream, unpermute), {{oracle::moe_token_unpermute(rows, places, probs, top_k), {}}}));

  npu::MoeReRoutingArgs re_routing;
  re_routing.tokens = device_rows;
  re_routing.expert_token_num_per_rank = device_counts;
  add("npu_moe_re_routing", "f32[10, 17]",
      difference(call_operator(stream, re_routing), oracle::moe_re_routing(rows, {}, {3, 0, 1, 6}, 2)));

  npu::MoeFinalizeRoutingArgs finalize;
  finalize.expanded_permuted_rows = device_rows;
  finalize.scales = device_probs;
  finalize.expanded_src_to_dst_row = device_places;
  const oracle::FinalizeRouting finalized{rows, {}, {}, {}, probs, places, {}, tokens, top_k, true};
  add("npu_moe_finalize_routing", "f32[10, 17] top 2",
      relative_error(call_operator(stream, finalize).front(), oracle::moe_finalize_routing(finalized)), 1e-6);
  return results;
}

}  // namespace moecl::test
