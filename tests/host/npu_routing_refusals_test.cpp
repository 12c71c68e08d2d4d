#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_routing.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/devices.hpp"

namespace moecl::test {
namespace {

/// Expects `run` to throw an Error whose text has `part`.
#define EXPECT_REFUSED(run, part) EXPECT_THAT([&] { run; }, testing::ThrowsMessage<Error>(testing::HasSubstr(part)))

class NpuRoutingRefusalsTest : public OnEveryDevice {
 protected:
  GuardedTensor floats(std::initializer_list<std::int64_t> shape) const { return {device(), DType::f32, shape}; }
  GuardedTensor ints(std::initializer_list<std::int64_t> shape, const std::vector<std::int32_t>& values) const {
    return {device(), DType::i32, shape, values};
  }
  /// Runs strictly, where a fault on the device is thrown as an Error, and compatibly, where the fault goes unreported.
  template <class Args>
  void expect_fault(const Args& args, const char* part) const {
    EXPECT_REFUSED(call_operator(device().stream, args), part);
    npu::Call how;
    how.validation = npu::Validation::compatible;
    EXPECT_NO_THROW(call_operator(device().stream, args, how));
  }
};
MOECL_ON_EVERY_DEVICE(NpuRoutingRefusalsTest);

TEST_P(NpuRoutingRefusalsTest, InitRouting) {
  const GuardedTensor x = floats({2, 5}), ids = ints({2, 2}, {0, 1, 2, -1}), row_idx = ints({2, 2}, {0, 2, 1, 4}),
                      flat = ints({4}, {0, 1, 2, 3}), right = ints({2, 2}, {0, 2, 1, 3});
  npu::MoeInitRoutingArgs args{x, row_idx, right, 2, {}, {}, {}};
  expect_fault(args, "index 3 of the list is 4, which is out of range");
  args.row_idx = right;
  args.expert_idx = ids;
  expect_fault(args, "slot 3 has the sort key -1, which is out of range");
  args.active_num = -1;
  EXPECT_REFUSED(infer(args), "active_num: -1 is negative");
  args.row_idx = flat;
  EXPECT_REFUSED(infer(args), "row_idx");
}

TEST_P(NpuRoutingRefusalsTest, InitRoutingV2) {
  const GuardedTensor x = floats({2, 5}), ids = ints({2, 2}, {0, 1, 2, 1}), scale = floats({3, 5});
  npu::MoeInitRoutingV2Args args;
  args.x = x;
  args.expert_idx = ids;
  EXPECT_REFUSED(infer(args), "expert_num: -1 is outside");
  args.expert_num = 4;
  const auto refused = [&](auto change, const char* part) {
    npu::MoeInitRoutingV2Args other = args;
    change(other);
    EXPECT_REFUSED(infer(other), part);
  };
  refused([](auto& a) { a.active_expert_range = {2, 5}; }, "[2, 5) is no range of 4 experts");
  refused([](auto& a) { a.active_expert_range = {2}; }, "expected 2 numbers, got 1");
  refused([](auto& a) { a.quant_mode = 10; }, "quant_mode: 10 is none of -1 to 9 and 11 to 17");
  refused([](auto& a) { a.quant_mode = 18; }, "quant_mode: 18 is none of -1 to 9 and 11 to 17");
  refused([](auto& a) { a.quant_mode = 0; }, "scale");
  refused([&](auto& a) { a.quant_mode = 1, a.scale = scale; }, "scale");
  refused([](auto& a) { a.expert_tokens_num_type = 3; }, "expert_tokens_num_type: 3");
  refused([](auto& a) { a.drop_pad_mode = 1; }, "expert_capacity: -1 is outside [1, ");
  refused([](auto& a) { a.drop_pad_mode = 1, a.expert_capacity = 1, a.active_expert_range = {0, 2}; }, "all 4 experts");
  refused([](auto& a) { a.drop_pad_mode = 1, a.expert_capacity = 1, a.row_idx_type = 1; }, "goes with 0, got 1");
}

TEST_P(NpuRoutingRefusalsTest, TokenPermuteAndUnpermute) {
  const GuardedTensor rows = floats({4, 5}), indices = ints({2, 2}, {0, 1, 1 << 24, 1}), tokens = floats({2, 5}),
                      sorted = ints({4}, {0, 1, 2, 3}), three = floats({3, 1}), wrong = ints({4}, {0, 1, 2, 1});
  npu::MoeTokenPermuteArgs permute;
  permute.tokens = tokens;
  permute.indices = indices;
  expect_fault(permute, "slot 2 has the sort key 16777216");
  permute.padded_mode = true;
  EXPECT_REFUSED(infer(permute), "padded_mode: true is not offered");
  permute.padded_mode = false;
  permute.indices = sorted;
  EXPECT_REFUSED(infer(permute), "i32 or i64 [2] or [2, K], got i32[4]");

  npu::MoeTokenUnpermuteArgs unpermute;
  unpermute.permuted_tokens = rows;
  unpermute.sorted_indices = sorted;
  unpermute.probs = three;
  EXPECT_REFUSED(infer(unpermute), "[N, K] for 4 sorted_indices, got f32[3, 1]");
  unpermute.probs = {};
  unpermute.padded_mode = true;
  EXPECT_REFUSED(infer(unpermute), "padded_mode needs [N, 5], got 0 numbers");
  unpermute.restore_shape = {2, 5};
  unpermute.sorted_indices = wrong;
  expect_fault(unpermute, "index 2 of the list is 2, which is out of range");
}

TEST_P(NpuRoutingRefusalsTest, ReRouting) {
  const GuardedTensor tokens = floats({4, 5}), counts = ints({1, 2}, {3, 0}), negative = ints({1, 2}, {5, -1});
  npu::MoeReRoutingArgs args;
  args.tokens = tokens;
  args.expert_token_num_per_rank = counts;
  expect_fault(args, "the sum is 3, expected the 4 rows there are");
  args.expert_token_num_per_rank = negative;
  expect_fault(args, "entry 1 makes the negative count -1");
  args.idx_type = 1;
  EXPECT_REFUSED(infer(args), "idx_type: 1 is not offered");
}

TEST_P(NpuRoutingRefusalsTest, FinalizeRouting) {
  const GuardedTensor rows = floats({4, 5}), scales = floats({2, 2}), skip = floats({2, 5}), bias = floats({3, 5}),
                      index = ints({4}, {0, 1, 2, 3}), dropped = ints({4}, {0, -1, 2, 3}),
                      ids = ints({2, 2}, {0, 1, 2, 3});
  npu::MoeFinalizeRoutingArgs args;
  args.expanded_permuted_rows = rows;
  args.scales = scales;
  args.expanded_src_to_dst_row = dropped;
  expect_fault(args, "index 1 of the list is -1, which is out of range");
  args.drop_pad_mode = 1;
  EXPECT_NO_THROW(call_operator(device().stream, args));
  args.bias = bias;
  EXPECT_REFUSED(infer(args), "export_for_source_row");
  args.export_for_source_row = ids;
  expect_fault(args, "index 3 of the list is 3, which is out of range");
  args.skip2 = skip;
  EXPECT_REFUSED(infer(args), "skip2: needs skip1");
  args.drop_pad_mode = 4;
  EXPECT_REFUSED(infer(args), "drop_pad_mode: 4 is outside [0, 3]");
}

}  // namespace
}  // namespace moecl::test
