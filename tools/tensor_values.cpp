#include "tools/tensor_values.hpp"

#include <moecl/bf16.hpp>
#include <moecl/error.hpp>
#include <moecl/f16.hpp>

#include <cstring>
#include <random>

namespace moecl::cli {
namespace {

template <class Stored, class Convert>
std::vector<float> converted(const HostTensor& tensor, Convert convert) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  const HostBytes bytes = tensor.in_memory().data;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored element;
    std::memcpy(&element, bytes.memory() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(element);
  }
  return values;
}

template <class Stored>
std::vector<std::byte> encoded(const std::vector<float>& values, Stored (*convert)(float)) {
  std::vector<std::byte> bytes(values.size() * sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Stored element = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &element, sizeof(Stored));
  }
  return bytes;
}

}  // namespace

std::vector<float> to_f32(const HostTensor& tensor) {
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (tensor.dtype) {
    case DType::f64:
      return converted<double>(tensor, cast);
    case DType::f32:
      return converted<float>(tensor, cast);
    case DType::f16:
      return converted<std::uint16_t>(tensor, f16_to_f32);
    case DType::bf16:
      return converted<std::uint16_t>(tensor, bf16_to_f32);
    case DType::i32:
      return converted<std::int32_t>(tensor, cast);
    case DType::i64:
      return converted<std::int64_t>(tensor, cast);
    case DType::u8:
      return converted<std::uint8_t>(tensor, cast);
    default:
      throw Error(ErrorCode::invalid_data, tensor.describe() + ": expected a float or integer tensor");
  }
}

std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  switch (dtype) {
    case DType::f16:
      return encoded<std::uint16_t>(values, [](float v) { return f16_from_f32(v); });
    case DType::bf16:
      return encoded<std::uint16_t>(values, [](float v) { return bf16_from_f32(v); });
    default:
      return encoded<float>(values, [](float v) { return v; });
  }
}

std::vector<float> random_normal(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(engine);
  return values;
}

}  // namespace moecl::cli
