// Shared by the C++ examples: random numbers, the error of a result, and a main that reports this error.
#pragma once
#include <moecl/buffer.hpp>
#include <moecl/device_tensor.hpp>
#include <moecl/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

inline std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

/// The largest difference, relative to the largest expected value.
inline double relative_error(const std::vector<float>& values, const std::vector<float>& expected) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double{values.at(i)} - double{expected[i]});
    if (std::isnan(difference) || difference > worst) worst = difference;  // a NaN stays
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return worst / largest;
}

template <class Value>
void write(moecl::StreamView stream, const moecl::DeviceTensor& to, const std::vector<Value>& values) {
  moecl::write_blocking(stream, to.buffer.view(), values.data(), values.size() * sizeof(Value));
}

template <class Value>
std::vector<Value> read(moecl::StreamView stream, const moecl::DeviceTensor& from) {
  std::vector<Value> values(from.buffer.size_bytes() / sizeof(Value));
  moecl::read_blocking(stream, from.buffer.view(), values.data(), values.size() * sizeof(Value));
  return values;
}

/// main's result: 0 when the error that `body` returns is at most `bound`.
template <class Body>
int run_example(double bound, const Body& body) {
  try {
    const double error = body();
    std::printf("error %.2g, at most %.2g\n", error, bound);
    return error <= bound ? 0 : 1;
  } catch (const moecl::Error& error) {
    std::fprintf(stderr, "%s: %s\n", moecl::to_string(error.code()), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
