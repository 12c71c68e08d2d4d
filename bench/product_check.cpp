#include "bench/product_check.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/device.hpp"
#include "runtime/check.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::bench {

void check_product(const ModelCase& model, Which which, const ModelWeights& weights, const Routing& routing, DType out,
                   const std::vector<std::byte>& raw) {
  const ProductShape shape(model, which, routing);
  const Activations activations(model.scheme, shape.k);
  if (activations.group != 0) return;
  const std::vector<std::byte> rows = product_activations(model, shape);
  const auto* bytes = reinterpret_cast<const unsigned char*>(rows.data());
  const auto* results = reinterpret_cast<const unsigned char*>(raw.data());
  const auto columns = static_cast<std::size_t>(shape.k), width = columns * size_bytes(activations.dtype);
  const double rounding = out == DType::f32 ? 0 : out == DType::bf16 ? 0x1p-8 : 0x1p-11;
  // Tensor cores keep about 14 bits of a sum of fp8 products (DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
  const bool f8_in_tensor_cores = stream().device->caps.nv_compute_capability >= 89 &&
                                  (activations.dtype == DType::f8_e4m3 || activations.dtype == DType::f8_e5m2);
  const double tolerance = f8_in_tensor_cores ? 0x1p-12 : 1e-4;
  std::mt19937_64 engine(1);
  for (int sample = 0; sample < 64; ++sample) {
    const std::size_t row = engine() % routing.sorted_slots.size();
    const auto column = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(shape.n));
    const auto expert = static_cast<std::size_t>(
        std::upper_bound(routing.row_ends.begin(), routing.row_ends.end(), static_cast<std::int32_t>(row)) -
        routing.row_ends.begin());
    const ExpertMatrices& matrices = weights.weights.experts[expert];
    const bool up = which == Which::gate_up && column >= model.shape.intermediate;
    const WeightMatrix& matrix = which == Which::down ? matrices.down : up ? matrices.up : matrices.gate;
    const std::size_t source = which == Which::down ? row
                                                    : static_cast<std::size_t>(routing.sorted_slots[row]) /
                                                          static_cast<std::size_t>(routing.top_k);
    const std::vector<double> a =
        test::decode(activations.dtype, {bytes + source * width, bytes + (source + 1) * width});
    double sum = 0, magnitudes = 0;
    for (std::size_t k = 0; k < columns; ++k) {
      const double product =
          a[k] * activation_scale(model) *
          test::weight_element(matrix, up ? column - model.shape.intermediate : column, static_cast<std::int64_t>(k));
      sum += product, magnitudes += std::abs(product);
    }
    const auto* element =
        results + (row * static_cast<std::size_t>(shape.n) + static_cast<std::size_t>(column)) * size_bytes(out);
    const double got = test::decode(out, {element, element + size_bytes(out)}).front();
    if (!(std::abs(got - sum) <= tolerance * magnitudes + rounding * std::abs(sum)))
      fail(ErrorCode::device_error, "wrong result: element [{}, {}] of the product is {}, expected {}", row, column,
           got, sum);
  }
}

}  // namespace moecl::bench
