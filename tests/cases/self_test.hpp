#pragma once
// The tests of `moecl doctor`: every operator, in each variant the device may get, on tiny inputs against the oracle.
#include <moecl/stream.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct SelfTestResult {
  std::string op, variant, shape;
  double error = 0, tolerance = 0;
  bool ok() const { return error <= tolerance; }  // false for NaN
};

inline void append(std::vector<SelfTestResult>& to, const std::vector<SelfTestResult>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Runs the case. Each output gives one result.
template <class Of>
std::vector<SelfTestResult> self_test(StreamView stream, const std::string& op, const std::string& variant,
                                      const Of& of) {
  std::vector<SelfTestResult> results;
  for (const Compared& output : OperandsOf(stream, of).run())
    results.push_back({op, variant + (variant.empty() || output.output.empty() ? "" : " ") + output.output,
                       of.describe(), output.error, output.tolerance});
  return results;
}

/// Runs all self-tests, in the order of a layer's steps.
/// @param progress  called before each test with the number of tests that have ended, and of all tests
std::vector<SelfTestResult> run_self_tests(StreamView stream,
                                           const std::function<void(std::int64_t, std::int64_t)>& progress = {});

std::vector<SelfTestResult> self_test_gating_top_k(StreamView stream);
std::vector<SelfTestResult> self_test_expert_sort(StreamView stream);
std::vector<SelfTestResult> self_test_fused_moe(StreamView stream);
std::vector<SelfTestResult> self_test_route_tokens(StreamView stream);
std::vector<SelfTestResult> self_test_gather_rows(StreamView stream);
std::vector<SelfTestResult> self_test_quantize_rows(StreamView stream);
std::vector<SelfTestResult> self_test_mx_quantize(StreamView stream);
std::vector<SelfTestResult> self_test_quantize_groups(StreamView stream);
std::vector<SelfTestResult> self_test_row_differences(StreamView stream);
std::vector<SelfTestResult> self_test_pack_weights(StreamView stream);
std::vector<SelfTestResult> self_test_grouped_gemm(StreamView stream);
std::vector<SelfTestResult> self_test_quantized_weights(StreamView stream);
std::vector<SelfTestResult> self_test_gated_activation(StreamView stream);
std::vector<SelfTestResult> self_test_combine(StreamView stream);
std::vector<SelfTestResult> self_test_window_slots(StreamView stream);
std::vector<SelfTestResult> self_test_physical_experts(StreamView stream);
std::vector<SelfTestResult> self_test_expert_slots(StreamView stream);
// Operators of moecl::npu, one file for each family.
std::vector<SelfTestResult> self_test_npu_routing(StreamView stream);
std::vector<SelfTestResult> self_test_npu_gating(StreamView stream);
std::vector<SelfTestResult> self_test_npu_quant(StreamView stream);
std::vector<SelfTestResult> self_test_npu_activation(StreamView stream);
std::vector<SelfTestResult> self_test_npu_matmul(StreamView stream);
std::vector<SelfTestResult> self_test_npu_distribute(StreamView stream);

}  // namespace moecl::test
