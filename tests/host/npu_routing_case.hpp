#pragma once
// One random case of the routing operators: sizes, values that every dtype holds exactly, and what is on the device.
#include <algorithm>
#include <numeric>

#include "tests/host/npu_property.hpp"
#include "tests/oracle/npu_routing.hpp"

namespace moecl::test {

using oracle::Ints;
using oracle::Matrix;
inline const std::vector<DType> floats = {DType::f32, DType::f16, DType::bf16},
                                movable = {DType::f32, DType::f16, DType::bf16, DType::i8};

struct RoutingCase {
  const TestDevice& device;
  std::mt19937_64 engine;
  std::int64_t tokens, top_k, hidden;

  RoutingCase(const TestDevice& on, int number)
      : device(on),
        engine(static_cast<std::uint64_t>(number)),
        tokens(number % 50 == 0 ? 700 : pick(0, 12)),
        top_k(pick(1, 5)),
        hidden(pick(1, 40)) {}

  std::int64_t slots() const { return tokens * top_k; }
  std::int64_t pick(std::int64_t least, std::int64_t most) { return between(engine, least, most); }
  bool coin() { return pick(0, 1) == 1; }

  Matrix matrix(std::int64_t rows) {
    Matrix values{std::vector<double>(static_cast<std::size_t>(rows * hidden)), static_cast<std::size_t>(hidden)};
    for (double& value : values.values) value = static_cast<double>(pick(-127, 127));
    return values;
  }
  Ints ints(std::int64_t count, std::int64_t least, std::int64_t most) {
    Ints values(static_cast<std::size_t>(count));
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(pick(least, most));
    return values;
  }
  /// 0 to count - 1 in some order.
  Ints permutation(std::int64_t count) {
    Ints values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    std::shuffle(values.begin(), values.end(), engine);
    return values;
  }
  GuardedTensor upload(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<double>& values) {
    return test::upload(device, dtype, shape, values);
  }
  GuardedTensor upload(std::initializer_list<std::int64_t> shape, const Ints& values) {
    return {device, DType::i32, shape, values};
  }
};

inline std::vector<Expected> exactly(const std::vector<oracle::Tensor>& outputs) {
  std::vector<Expected> expected;
  for (const oracle::Tensor& output : outputs) expected.push_back({output.values, output.defined, 0, 0});
  return expected;
}

class RoutingProperty : public OnEveryDevice {
 protected:
  template <class Body>
  void for_each_case(Body body) {
    for (int i = 0; i < property_cases(device()); ++i) {
      RoutingCase c(device(), i);
      SCOPED_TRACE(testing::Message() << "case " << i << ": N = " << c.tokens << ", K = " << c.top_k
                                      << ", H = " << c.hidden);
      body(c);
      if (HasFatalFailure()) return;
    }
  }
};

}  // namespace moecl::test
