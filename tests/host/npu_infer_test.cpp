// How `infer` treats arguments that were used before.
#include <moecl/npu_activation.hpp>
#include <moecl/npu_distribute.hpp>
#include <moecl/npu_gating.hpp>

#include <gtest/gtest.h>

namespace moecl::test {
namespace {

TensorView described(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {{nullptr, 0, 1 << 20}, dtype, dims};
}

/// @param ask  makes the arguments ask for an output, or not, and returns that output
template <class Args, class Ask>
void goes_absent(Args args, Ask ask) {
  const TensorView& output = ask(args, true);
  infer(args);
  EXPECT_TRUE(output.present());
  ask(args, false);
  infer(args);
  EXPECT_FALSE(output.present());
}

template <class Args>
Args dispatch_args() {
  Args args;
  args.x = described(DType::bf16, {4, 8});
  args.expert_ids = described(DType::i32, {4, 2});
  args.ep_world_size = 2;
  args.moe_expert_num = 4;
  return args;
}

TEST(NpuInferTest, OutputsThatAreNotWrittenAreAbsentInReusedArguments) {
  const auto first = dispatch_args<npu::MoeDistributeDispatchArgs>();
  goes_absent(
      first, [](auto& args, bool asked) -> auto& {
        args.quant_mode = asked ? 2 : 0;
        return args.dynamic_scales;
      });
  goes_absent(
      first, [](auto& args, bool asked) -> auto& {
        args.tp_world_size = asked ? 1 : 0;
        return args.tp_recv_counts;
      });
  goes_absent(
      dispatch_args<npu::MoeDistributeDispatchV2Args>(), [](auto& args, bool asked) -> auto& {
        args.expert_scales = asked ? described(DType::f32, {4, 2}) : TensorView();
        return args.expand_scales;
      });

  npu::MoeGatingTopKArgs gating;
  gating.x = described(DType::f32, {3, 8});
  gating.k = 2;
  goes_absent(
      gating, [](auto& args, bool asked) -> auto& {
        args.out_flag = asked;
        return args.out;
      });
  npu::MoeGatingTopKSoftmaxV2Args softmax;
  softmax.x = gating.x;
  softmax.k = 2;
  goes_absent(
      softmax, [](auto& args, bool asked) -> auto& {
        args.output_softmax = asked;
        return args.softmax_result;
      });
  npu::DequantSwigluQuantArgs swiglu;
  swiglu.x = described(DType::f16, {3, 8});
  goes_absent(
      swiglu, [](auto& args, bool asked) -> auto& {
        args.quant_mode = asked ? 1 : 0;
        return args.scale;
      });
}

}  // namespace
}  // namespace moecl::test
