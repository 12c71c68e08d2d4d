#include "host/npu/call.hpp"
#include "host/npu/describe_gating.hpp"
#include "host/npu/gating.hpp"

namespace moecl::npu {
namespace {

RouterSpec spec_of(const MoeGatingTopKArgs& args) {
  RouterSpec spec;
  spec.top_k = static_cast<std::int32_t>(args.k);
  spec.score = args.norm_type == 0 ? ScoreFunction::softmax : ScoreFunction::sigmoid;
  spec.groups = static_cast<std::int32_t>(args.group_count);
  spec.kept_groups = static_cast<std::int32_t>(args.k_group);
  spec.group_score = args.group_select_mode == 0 ? GroupScore::max : GroupScore::sum_of_top_2;
  spec.renormalise = args.norm_type == 1 || args.renorm == 1;
  spec.renormalise_epsilon = static_cast<float>(args.eps);
  spec.scaling_factor = static_cast<float>(args.routed_scaling_factor);
  return spec;
}

gating_top_k::Args kernel_of(const MoeGatingTopKArgs& args) {
  return {as_rows(args.x), args.bias, as_rows(args.expert_idx), as_rows(args.y), rows_if_present(args.out)};
}

void compose(Steps& steps, const MoeGatingTopKArgs& args) { steps.run(kernel_of(args), spec_of(args)); }

}  // namespace

void infer(MoeGatingTopKArgs& args) {
  expect_logits(args.x, args.k, 2048);
  expect_flag("group_select_mode", args.group_select_mode);
  expect_flag("renorm", args.renorm);
  if (args.norm_type == 2) fail(ErrorCode::unsupported, "norm_type: 2, sqrt(softplus), is not supported");
  expect_flag("norm_type", args.norm_type);
  const std::int64_t experts = args.x.shape[args.x.rank - 1];
  require(args.group_count >= 1 && experts % args.group_count == 0,
          "group_count: {} experts do not form {} equal groups", experts, args.group_count);
  require(args.group_count == 1 || experts / args.group_count > 2,
          "group_count: groups need more than 2 experts, but {} of {} have {}", args.group_count, experts,
          experts / args.group_count);
  require(args.k_group >= 1 && args.k_group <= args.group_count, "k_group: {} of {} groups cannot be kept",
          args.k_group, args.group_count);
  const std::string reason = gating_top_k::reject(spec_of(args), experts);
  require(reason.empty(), "{}", reason);
  set_shape(args.y, args.x.dtype, chosen_shape(args.x, args.k));
  set_shape(args.expert_idx, DType::i32, chosen_shape(args.x, args.k));
  args.out.rank = 0;
  if (args.out_flag) set_shape(args.out, DType::f32, shape_of(args.x));
}

std::uint64_t workspace_bytes(const MoeGatingTopKArgs& args, const Device& device) {
  return measure(args, device, compose);
}
OperatorCost cost(const MoeGatingTopKArgs& args) { return gating_top_k::cost(kernel_of(args)); }
void moe_gating_top_k(StreamView stream, const MoeGatingTopKArgs& args, const Call& how) {
  call(stream, args, how, compose);
}

}  // namespace moecl::npu
