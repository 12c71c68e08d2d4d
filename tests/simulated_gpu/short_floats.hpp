#pragma once
#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp8.hpp>

#include <cmath>
#include <cstdint>

/// Floats of 16 and 8 bits as the hardware encodes them: every NaN that it produces has the same code.
namespace simulated_gpu {

struct Bf16 {
  static float decode(std::uint32_t code) { return moecl::bf16_to_f32(static_cast<std::uint16_t>(code)); }
  static std::uint16_t encode(float value) { return std::isnan(value) ? 0x7fff : moecl::bf16_from_f32(value); }
};
struct F16 {
  static float decode(std::uint32_t code) { return moecl::f16_to_f32(static_cast<std::uint16_t>(code)); }
  static std::uint16_t encode(float value) { return std::isnan(value) ? 0x7fff : moecl::f16_from_f32(value); }
};

/// a * b + c for each of the two 16-bit halves of a word.
template <class Float>
std::uint32_t fma_of_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t pair = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const float number = std::fma(Float::decode(a >> shift), Float::decode(b >> shift), Float::decode(c >> shift));
    pair |= std::uint32_t{Float::encode(number)} << shift;
  }
  return pair;
}

}  // namespace simulated_gpu
