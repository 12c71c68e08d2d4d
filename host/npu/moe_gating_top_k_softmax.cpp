#include <moecl/index_vectors.hpp>

#include "host/npu/call.hpp"
#include "host/npu/describe_gating.hpp"
#include "host/npu/gating.hpp"

namespace moecl::npu {
namespace {

constexpr std::int64_t most_experts = 1024;

gating_top_k::Args kernel_of(const MoeGatingTopKSoftmaxArgs& args) {
  return {as_rows(args.x), {}, as_rows(args.expert_idx), as_rows(args.y), {}, flags_of_rows(args.finished, args.x)};
}
gating_top_k::Args kernel_of(const MoeGatingTopKSoftmaxV2Args& args) {
  return {as_rows(args.x),
          {},
          as_rows(args.expert_idx),
          as_rows(args.y),
          rows_if_present(args.softmax_result),
          flags_of_rows(args.finished, args.x)};
}

RouterSpec softmax(std::int64_t k, ScoreOrder order) {
  RouterSpec spec{static_cast<std::int32_t>(k)};
  spec.order = order;
  return spec;
}

void compose(Steps& steps, const MoeGatingTopKSoftmaxArgs& args) {
  steps.run(kernel_of(args), softmax(args.k, ScoreOrder::before_top_k));
  steps.run(index_vectors::ColumnOrder{as_rows(args.row_idx)});
}
void compose_v2(Steps& steps, const MoeGatingTopKSoftmaxV2Args& args) {
  steps.run(kernel_of(args), softmax(args.k, args.renorm == 1 ? ScoreOrder::after_top_k : ScoreOrder::before_top_k));
}

}  // namespace

void infer(MoeGatingTopKSoftmaxArgs& args) {
  expect_logits(args.x, args.k, most_experts);
  const std::vector<std::int64_t> chosen = chosen_shape(args.x, args.k);
  set_shape(args.y, args.x.dtype, chosen);
  set_shape(args.expert_idx, DType::i32, chosen);
  set_shape(args.row_idx, DType::i32, chosen);
}
void infer(MoeGatingTopKSoftmaxV2Args& args) {
  expect_logits(args.x, args.k, most_experts);
  expect_flag("renorm", args.renorm);
  const std::vector<std::int64_t> chosen = chosen_shape(args.x, args.k);
  set_shape(args.y, args.x.dtype, chosen);
  set_shape(args.expert_idx, DType::i32, chosen);
  args.softmax_result.rank = 0;
  if (args.output_softmax && args.renorm == 0) set_shape(args.softmax_result, DType::f32, shape_of(args.x));
}

std::uint64_t workspace_bytes(const MoeGatingTopKSoftmaxArgs& args, const Device& device) {
  return measure(args, device, compose);
}
std::uint64_t workspace_bytes(const MoeGatingTopKSoftmaxV2Args& args, const Device& device) {
  return measure(args, device, compose_v2);
}

OperatorCost cost(const MoeGatingTopKSoftmaxArgs& args) {
  OperatorCost cost = gating_top_k::cost(kernel_of(args));
  cost.bytes += args.row_idx.size_bytes();
  return cost;
}
OperatorCost cost(const MoeGatingTopKSoftmaxV2Args& args) { return gating_top_k::cost(kernel_of(args)); }

void moe_gating_top_k_softmax(StreamView stream, const MoeGatingTopKSoftmaxArgs& args, const Call& how) {
  call(stream, args, how, compose);
}
void moe_gating_top_k_softmax_v2(StreamView stream, const MoeGatingTopKSoftmaxV2Args& args, const Call& how) {
  call(stream, args, how, compose_v2);
}

}  // namespace moecl::npu
