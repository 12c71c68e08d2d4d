#include "tests/oracle/gated_activation.hpp"

#include <moecl/gated_activation.hpp>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

constexpr std::int32_t lane_choices[] = {1, 64};

std::vector<double> by_rows(const std::vector<double>& x, std::int64_t rows, const Activation& activation) {
  std::vector<double> out;
  const auto width = static_cast<std::ptrdiff_t>(x.size()) / rows;
  for (std::ptrdiff_t r = 0; r < rows; ++r) {
    const std::vector<double> row =
        oracle::gated_activation({x.begin() + r * width, x.begin() + (r + 1) * width}, activation);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

class GatedActivationTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(GatedActivationTest);

TEST_P(GatedActivationTest, ComputesEveryFunctionInHalvesInterleavedAndPlain) {
  constexpr std::int64_t rows = 3, x_width = 66;
  std::vector<double> x = normal(rows * x_width, 1);
  for (double& value : x) value *= 4;  // beyond swigluoai's limit too
  const GuardedTensor device_x = upload(device(), DType::f32, {rows, x_width}, x);
  x = rounded(DType::f32, x);
  for (const auto function : {ActivationFunction::silu, ActivationFunction::gelu, ActivationFunction::gelu_tanh,
                              ActivationFunction::swigluoai, ActivationFunction::relu2}) {
    for (const Activation& activation :
         {Activation{function, true, false}, Activation{function, true, true}, Activation{function, false, false}}) {
      if (function == ActivationFunction::swigluoai && !activation.gated) continue;
      for (const std::int32_t lanes : lane_choices) {
        SCOPED_TRACE(testing::Message() << "function " << static_cast<int>(function) << ", gated " << activation.gated
                                        << ", interleaved " << activation.interleaved << ", lanes = " << lanes);
        const GuardedTensor out(device(), DType::f32, {rows, activation.gated ? x_width / 2 : x_width});
        gated_activation::enqueue(device().stream, {device_x, {}, 0, activation, out, {}}, {lanes});
        EXPECT_LE(relative_error(out.values(), by_rows(x, rows, activation)), 2e-6);
      }
    }
  }
}

}  // namespace
}  // namespace moecl::test
