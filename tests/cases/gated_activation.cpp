#include "tests/oracle/gated_activation.hpp"

#include <moecl/gated_activation.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_gated_activation(StreamView stream) {
  const std::vector<double> x = rounded(DType::f32, normal(2 * 33, 1));
  const DeviceTensor device_x(stream, DType::f32, {1, 66}, x), out(stream, DType::f32, {1, 33});
  std::vector<SelfTestResult> results;
  for (const auto& [function, variant] : {std::pair{ActivationFunction::silu, "silu"},
                                          {ActivationFunction::gelu, "gelu"},
                                          {ActivationFunction::gelu_tanh, "gelu_tanh"},
                                          {ActivationFunction::swigluoai, "swigluoai"},
                                          {ActivationFunction::relu2, "relu2"},
                                          {ActivationFunction::relu, "relu"},
                                          {ActivationFunction::fast_gelu, "fast_gelu"}}) {
    const Activation activation{function};
    gated_activation::enqueue(stream, {device_x, {}, 0, activation, out, {}});
    results.push_back({"gated_activation", variant, "f32[1, 66]",
                       relative_error(out.values(stream), oracle::gated_activation(x, activation)), 2e-6});
  }
  return results;
}

}  // namespace moecl::test
