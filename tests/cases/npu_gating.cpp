#include "host/npu/describe_gating.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t tokens = 3, experts = 24, k = 4;

/// Ids and weights of every token, one after the other.
struct Chosen {
  std::vector<double> ids, weights;

  Chosen(const std::vector<double>& x, const RouterSpec& spec) {
    for (auto row = x.begin(); row != x.end(); row += experts) {
      const oracle::TopK one = oracle::gating_top_k({row, row + experts}, {}, spec);
      ids.insert(ids.end(), one.ids.begin(), one.ids.end());
      weights.insert(weights.end(), one.weights.begin(), one.weights.end());
    }
  }
};

template <class Args>
void test_operator(StreamView stream, const TensorView& x, const std::vector<double>& values, Args args,
                   const RouterSpec& spec, std::vector<SelfTestResult>& results) {
  args.x = x;
  args.k = k;
  const std::vector<std::vector<double>> outputs = call_operator(stream, args);
  const Chosen chosen(values, spec);
  const char* const name = npu::Describe<Args>::name;
  results.push_back({name, "expert_idx", "f32[3, 24]", relative_error(outputs[1], chosen.ids), 0});
  results.push_back({name, "y", "f32[3, 24]", relative_error(outputs[0], chosen.weights), 2e-6});
}

}  // namespace

std::vector<SelfTestResult> self_test_npu_gating(StreamView stream) {
  const std::vector<double> x = rounded(DType::f32, normal(tokens * experts, 1));
  const DeviceTensor device_x(stream, DType::f32, {tokens, experts}, x);
  std::vector<SelfTestResult> results;
  npu::MoeGatingTopKArgs grouped;
  grouped.norm_type = 1;
  grouped.group_count = 4;
  grouped.k_group = 2;
  test_operator(stream, device_x, x, grouped,
                {k, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 4, 2, GroupScore::max, true}, results);
  test_operator(stream, device_x, x, npu::MoeGatingTopKSoftmaxArgs{}, {k}, results);
  npu::MoeGatingTopKSoftmaxV2Args after;
  after.renorm = 1;
  test_operator(stream, device_x, x, after, {k, ScoreFunction::softmax, ScoreOrder::after_top_k}, results);
  return results;
}

}  // namespace moecl::test
