#include "tests/oracle/npu_distribute.hpp"

#include <moecl/communicator.hpp>

#include "host/npu/describe_distribute.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t tokens = 5, top_k = 2, hidden = 17;

template <class Args>
Args for_one_rank() {
  Args args;
  args.ep_world_size = 1;
  args.moe_expert_num = 4;
  return args;
}

template <class Args>
std::vector<DeviceTensor> run(Communicator& world, Args args) {
  const StreamView stream = world.stream();
  infer(args);
  std::vector<DeviceTensor> outputs;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    if (!view.present()) return;
    outputs.emplace_back(stream, DType::i8, std::initializer_list<std::int64_t>{std::int64_t(view.size_bytes())});
    view.buffer = outputs.back().buffer.view();
    outputs.back().view = view;
  });
  const Buffer workspace(*stream.context, workspace_bytes(args, *stream.device));
  const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  npu::Call how;
  how.workspace = workspace.view();
  how.fault = fault;
  npu::Describe<Args>::run(world, args, how);
  check_fault(stream, fault);
  return outputs;
}

}  // namespace

/// A group of this rank alone: rows go to its experts, which do nothing, and come back.
std::vector<SelfTestResult> self_test_npu_distribute(StreamView stream) {
  const std::vector<double> x = rounded(DType::bf16, normal(tokens * hidden, 1)),
                            weights = rounded(DType::f32, normal(tokens * top_k, 2));
  const std::vector<double> ids = {3, 1, 0, 3, 3, 2, 1, 0, 0, 3};
  const DeviceTensor device_x(stream, DType::bf16, {tokens, hidden}, x),
      device_ids(stream, DType::i32, {tokens, top_k}, ids),
      device_weights(stream, DType::f32, {tokens, top_k}, weights);
  RankGroup group({stream});
  Communicator world = group.communicator(0);
  auto dispatch = for_one_rank<npu::MoeDistributeDispatchV2Args>();
  dispatch.x = device_x;
  dispatch.expert_ids = device_ids;
  const std::vector<DeviceTensor> sent = run(world, dispatch);
  auto combine = for_one_rank<npu::MoeDistributeCombineV2Args>();
  combine.expand_x = sent.at(0);
  combine.assist_info_for_combine = sent.at(1);
  combine.ep_send_counts = sent.at(3);
  combine.expert_ids = device_ids;
  combine.expert_scales = device_weights;
  const std::vector<DeviceTensor> back = run(world, combine);
  std::vector<double> expected;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::vector<double> row(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
    const auto slot = static_cast<std::size_t>(t * top_k);
    const std::vector<double> sum = oracle::combined({{weights[slot], row}, {weights[slot + 1], row}}, {}, hidden);
    expected.insert(expected.end(), sum.begin(), sum.end());
  }
  return {{"npu_moe_distribute_dispatch_v2, _combine_v2", "", "bf16[5, 17] top 2, one rank",
           relative_error(back.at(0).values(stream), rounded(DType::bf16, expected)), 0}};
}

}  // namespace moecl::test
