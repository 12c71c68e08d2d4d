#include "host/checkpoint/normal_source.hpp"

#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>

#include <xxhash.h>

#include <cmath>
#include <cstring>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::size_t table_size = 65536;

/// Normal quantiles of (i + 1/2) / 65536, by Newton's method from the previous quantile.
std::vector<float> normal_quantiles() {
  std::vector<float> quantiles(table_size);
  const double root_two = std::sqrt(2.0), density_at_zero = 0.3989422804014327;
  double x = -4.3;
  for (std::size_t i = 0; i < table_size / 2; ++i) {
    const double probability = (static_cast<double>(i) + 0.5) / table_size;
    for (int step = 0; step < 8; ++step)
      x -= (0.5 * std::erfc(-x / root_two) - probability) / (density_at_zero * std::exp(-0.5 * x * x));
    quantiles[i] = static_cast<float>(x);
    quantiles[table_size - 1 - i] = static_cast<float>(-x);
  }
  return quantiles;
}

/// SplitMix64's output function: computes the n-th number of a stream without the earlier ones.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
std::uint64_t random_bits(std::uint64_t stream, std::uint64_t n) {
  std::uint64_t z = stream + (n + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

template <class Code>
void fill(std::byte* out, std::uint64_t elements, const std::byte* table, std::uint64_t stream) {
  for (std::uint64_t i = 0; i < elements; i += 4) {
    const std::uint64_t bits = random_bits(stream, i / 4);
    for (std::uint64_t j = 0; j < 4 && i + j < elements; ++j)
      std::memcpy(out + (i + j) * sizeof(Code), table + (bits >> (16 * j) & 0xffff) * sizeof(Code), sizeof(Code));
  }
}

}  // namespace

NormalSource::NormalSource(std::uint64_t seed) : seed_(seed), quantiles_(normal_quantiles()) {}

const NormalSource::Table& NormalSource::table(DType dtype, float deviation) {
  const auto [found, is_new] = tables_.try_emplace({dtype, deviation});
  Table& table = found->second;
  if (!is_new) return table;
  const std::size_t width = size_bytes(dtype);
  table.resize(table_size * width);
  for (std::size_t i = 0; i < table_size; ++i) {
    const float value = quantiles_[i] * deviation;
    const std::uint16_t half = dtype == DType::bf16 ? bf16_from_f32(value) : f16_from_f32(value);
    std::memcpy(table.data() + i * width, dtype == DType::f32 ? static_cast<const void*>(&value) : &half, width);
  }
  return table;
}

const std::byte* NormalSource::values(std::string_view name, DType dtype, std::uint64_t elements, float deviation) {
  require(is_activation_dtype(dtype), "random weights are f32, f16 or bf16, not {}", moecl::name(dtype));
  const std::byte* const quantiles = table(dtype, deviation).data();
  const std::uint64_t stream = XXH3_64bits_withSeed(name.data(), name.size(), seed_);
  buffer_.resize(elements * size_bytes(dtype));
  if (dtype == DType::f32)
    fill<std::uint32_t>(buffer_.data(), elements, quantiles, stream);
  else
    fill<std::uint16_t>(buffer_.data(), elements, quantiles, stream);
  return buffer_.data();
}

}  // namespace moecl
