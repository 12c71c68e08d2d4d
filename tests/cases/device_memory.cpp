#include "tests/cases/device_memory.hpp"

#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp8.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "runtime/check.hpp"

namespace moecl::test {
namespace {

constexpr std::uint64_t guard_bytes = 256;
constexpr std::uint32_t poison_word = 0x7fc17fc1;

unsigned char poison_byte(std::uint64_t at) { return static_cast<unsigned char>(poison_word >> (8 * (at % 4))); }

template <class T>
void append(std::vector<unsigned char>& bytes, T value) {
  unsigned char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

template <class T>
T element(const std::vector<unsigned char>& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::vector<double> decode(DType dtype, const std::vector<unsigned char>& bytes) {
  std::vector<double> values(bytes.size() / size_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::f64:
        values[i] = element<double>(bytes, i);
        break;
      case DType::f32:
        values[i] = element<float>(bytes, i);
        break;
      case DType::f16:
        values[i] = f16_to_f32(element<std::uint16_t>(bytes, i));
        break;
      case DType::bf16:
        values[i] = bf16_to_f32(element<std::uint16_t>(bytes, i));
        break;
      case DType::i32:
        values[i] = element<std::int32_t>(bytes, i);
        break;
      case DType::i8:
        values[i] = element<std::int8_t>(bytes, i);
        break;
      case DType::u8:
        values[i] = element<std::uint8_t>(bytes, i);
        break;
      case DType::f8_e4m3:
        values[i] = fp8_e4m3fn.decode(element<std::uint8_t>(bytes, i));
        break;
      case DType::i64:
        values[i] = static_cast<double>(element<std::int64_t>(bytes, i));
        break;
      default:
        fail(ErrorCode::unsupported, "tests do not decode {}", name(dtype));
    }
  }
  return values;
}

std::vector<unsigned char> encode(DType dtype, const std::vector<double>& values) {
  std::vector<unsigned char> bytes;
  bytes.reserve(values.size() * size_bytes(dtype));
  for (const double value : values) {
    switch (dtype) {
      case DType::f64:
        append(bytes, value);
        break;
      case DType::f32:
        append(bytes, static_cast<float>(value));
        break;
      case DType::f16:
        append(bytes, f16_from_f32(static_cast<float>(value)));
        break;
      case DType::bf16:
        append(bytes, bf16_from_f32(static_cast<float>(value)));
        break;
      case DType::i32:
        append(bytes, static_cast<std::int32_t>(value));
        break;
      case DType::i8:
        append(bytes, static_cast<std::int8_t>(value));
        break;
      case DType::u8:
        append(bytes, static_cast<std::uint8_t>(value));
        break;
      case DType::f8_e4m3:
        append(bytes, static_cast<std::uint8_t>(fp8_e4m3fn.encode(static_cast<float>(value))));
        break;
      case DType::i64:
        append(bytes, static_cast<std::int64_t>(value));
        break;
      default:
        fail(ErrorCode::unsupported, "tests do not encode {}", name(dtype));
    }
  }
  return bytes;
}

std::vector<double> rounded(DType dtype, const std::vector<double>& values) {
  return decode(dtype, encode(dtype, values));
}

std::vector<double> normal(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution;
  std::vector<double> values(count);
  for (double& value : values) value = distribution(engine);
  return values;
}

DeviceTensor::DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape, Guards guards) {
  std::uint64_t size = size_bytes(dtype);
  const std::uint64_t around = guards == Guards::none ? 0 : guard_bytes, start = around == 0 ? 0 : around + size;
  for (const std::int64_t extent : shape) size *= static_cast<std::uint64_t>(extent);
  buffer = Buffer(*stream.context, std::max<std::uint64_t>((start + size + around + 3) / 4 * 4, 4));
  view = TensorView(buffer.view().slice(start, size), dtype, shape);
  if (guards == Guards::around) poison(stream);
}

DeviceTensor::DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape,
                           const std::vector<double>& values, Guards guards)
    : DeviceTensor(stream, dtype, shape, guards) {
  const std::vector<unsigned char> bytes = encode(dtype, values);
  require(bytes.size() == view.size_bytes(), "device tensor: {} values for {}", values.size(), view.describe());
  write_blocking(stream, view.buffer, bytes.data(), bytes.size());
}

void DeviceTensor::poison(StreamView stream) const { enqueue_fill(stream, buffer.view(), poison_word); }

bool DeviceTensor::is_poison(std::size_t element, const std::vector<unsigned char>& bytes) const {
  const std::size_t size = size_bytes(view.dtype);
  for (std::size_t i = element * size; i < (element + 1) * size; ++i)
    if (bytes[i] != poison_byte(view.buffer.offset_bytes + i)) return false;
  return true;
}

std::vector<double> DeviceTensor::values(StreamView stream) const {
  std::vector<unsigned char> bytes(view.size_bytes());
  read_blocking(stream, view.buffer, bytes.data(), bytes.size());
  return decode(view.dtype, bytes);
}

DeviceTensor::Content DeviceTensor::content(StreamView stream) const {
  std::vector<unsigned char> all(buffer.size_bytes());
  read_blocking(stream, buffer.view(), all.data(), all.size());
  const std::uint64_t begin = view.buffer.offset_bytes, end = begin + view.size_bytes();
  Content content;
  for (std::uint64_t i = 0; begin != 0 && i < all.size(); i = i + 1 == begin ? end : i + 1)
    if (all[i] != poison_byte(i)) {
      content.damage = fmt::format("byte {} of {} was written outside the view", static_cast<std::int64_t>(i - begin),
                                   view.describe());
      break;
    }
  content.bytes.assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(end));
  return content;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

}  // namespace moecl::test
