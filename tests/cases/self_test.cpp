#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> run_self_tests(StreamView stream,
                                           const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::vector<SelfTestResult> results;
  // clang-format off
  const auto self_tests = {
      self_test_gating_top_k,
      self_test_expert_sort,
      self_test_route_tokens,
      self_test_gather_rows,
      self_test_quantize_rows,
      self_test_mx_quantize,
      self_test_quantize_groups,
      self_test_row_differences,
      self_test_pack_weights,
      self_test_grouped_gemm,
      self_test_quantized_weights,
      self_test_gated_activation,
      self_test_combine,
      self_test_fused_moe,
      self_test_window_slots,
      self_test_physical_experts,
      self_test_expert_slots,
      self_test_npu_routing,
      self_test_npu_gating,
      self_test_npu_quant,
      self_test_npu_activation,
      self_test_npu_matmul,
      self_test_npu_distribute,
  };
  // clang-format on
  std::int64_t ended = 0;
  for (const auto self_test : self_tests) {
    if (progress) progress(ended++, static_cast<std::int64_t>(self_tests.size()));
    append(results, self_test(stream));
  }
  return results;
}

}  // namespace moecl::test
