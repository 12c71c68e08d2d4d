#include <moecl/gather_rows.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/stable_sort.hpp>

#include <algorithm>
#include <limits>

#include "host/npu/call.hpp"
#include "host/npu/describe_routing.hpp"

namespace moecl::npu {
namespace {

void compose_routing(Steps& steps, const MoeInitRoutingArgs& args) {
  const std::int64_t slots = args.expert_idx.elements(), rows = args.expanded_x.shape[0];
  stable_sort::Args sort;
  sort.keys = reshaped(args.expert_idx, {slots});
  sort.key_bits = index_bits;
  sort.sorted_slots = steps.scratch(DType::i32, {slots});
  sort.fault = steps.fault();
  sort.scratch = steps.scratch_bytes(stable_sort::scratch_bytes(slots, index_bits, steps.caps()));
  steps.run(sort);

  index_vectors::SortedRouting routing;
  routing.sorted_slots = sort.sorted_slots;
  routing.ids = args.expert_idx;
  routing.row_idx = args.row_idx;
  routing.tokens = args.x.shape[0];
  routing.source_row = steps.scratch(DType::i32, {slots});
  routing.expanded_row_idx = args.expanded_row_idx;
  routing.expanded_expert_idx = args.expanded_expert_idx;
  routing.fault = steps.fault();
  steps.run(routing);

  gather_rows::Args gather;
  gather.x = args.x;
  gather.index = routing.source_row.rows(0, rows);
  gather.out = args.expanded_x;
  steps.run(gather);
}

void compose_counts(Steps& steps, const MoeComputeExpertTokensArgs& args) {
  steps.run(index_vectors::KeyEnds{args.sorted_expert_for_source_row, {}, args.total_rows_before_expert});
}

}  // namespace

void infer(MoeInitRoutingArgs& args) {
  require(args.x.rank == 2 && is_activation_dtype(args.x.dtype), "x: expected float [N, H], got {}", args.x);
  const std::int64_t tokens = args.x.shape[0];
  expect_tensor(args.expert_idx, "expert_idx", DType::i32, {tokens, -1});
  const std::int64_t top_k = args.expert_idx.shape[1];
  expect_tensor(args.row_idx, "row_idx", DType::i32, {tokens, top_k});
  require(args.active_num >= 0, "active_num: {} is negative", args.active_num);
  set_shape(args.expanded_x, args.x.dtype, {std::min(args.active_num, tokens) * top_k, args.x.shape[1]});
  set_shape(args.expanded_row_idx, DType::i32, {tokens * top_k});
  set_shape(args.expanded_expert_idx, DType::i32, {tokens * top_k});
}

std::uint64_t workspace_bytes(const MoeInitRoutingArgs& args, const Device& device) {
  return measure(args, device, compose_routing);
}

OperatorCost cost(const MoeInitRoutingArgs& args) {
  return {2 * args.expanded_x.size_bytes() + 4 * args.expert_idx.size_bytes(), 0};
}

void moe_init_routing(StreamView stream, const MoeInitRoutingArgs& args, const Call& how) {
  call(stream, args, how, compose_routing);
}

void infer(MoeComputeExpertTokensArgs& args) {
  expect_tensor(args.sorted_expert_for_source_row, "sorted_expert_for_source_row", DType::i32, {-1});
  require(args.num_expert >= 1 && args.num_expert <= std::numeric_limits<std::int32_t>::max(),
          "num_expert: {} is outside [1, 2^31)", args.num_expert);
  set_shape(args.total_rows_before_expert, DType::i32, {args.num_expert});
}

std::uint64_t workspace_bytes(const MoeComputeExpertTokensArgs& args, const Device& device) {
  return measure(args, device, compose_counts);
}

OperatorCost cost(const MoeComputeExpertTokensArgs& args) {
  return {args.sorted_expert_for_source_row.size_bytes() + args.total_rows_before_expert.size_bytes(), 0};
}

void moe_compute_expert_tokens(StreamView stream, const MoeComputeExpertTokensArgs& args, const Call& how) {
  call(stream, args, how, compose_counts);
}

}  // namespace moecl::npu
