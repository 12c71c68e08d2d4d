#pragma once
#include <moecl/dtype.hpp>

#include <cstdint>
#include <optional>

namespace moecl {

/// How an element of a weight matrix is stored: as a plain number, or as the code of a quantized one.
enum class CodeType : std::uint8_t {
  f32,
  f16,
  bf16,
  i8,
  u8,  ///< unsigned, relative to its zero point, which is 128 if none is given
  i4,  ///< two's complement
  u4,  ///< unsigned, relative to its zero point, which is 8 if none is given
  f8_e4m3,
  f8_e5m2,
  f6_e2m3,
  f6_e3m2,
  f4_e2m1,
};

/// The DType of the same number format; nullopt for codes narrower than a byte.
std::optional<DType> storage_dtype(CodeType type) noexcept;
/// The CodeType of f32, f16, bf16, i8, u8, f8_e4m3 or f8_e5m2.
/// Errors: invalid_argument  another storage type
CodeType code_type(DType dtype);

/// Units: bits of one element.
constexpr int bits(CodeType type) noexcept {
  switch (type) {
    case CodeType::f32:
      return 32;
    case CodeType::f16:
    case CodeType::bf16:
      return 16;
    case CodeType::i4:
    case CodeType::u4:
    case CodeType::f4_e2m1:
      return 4;
    case CodeType::f6_e2m3:
    case CodeType::f6_e3m2:
      return 6;
    default:
      return 8;
  }
}
/// Whether the codes are integers, which a scale and a zero point turn into numbers.
constexpr bool is_integer(CodeType type) noexcept {
  return type == CodeType::i8 || type == CodeType::u8 || type == CodeType::i4 || type == CodeType::u4;
}
/// The enumerator's name, in lower case.
constexpr const char* name(CodeType type) noexcept {
  switch (type) {
    case CodeType::f32:
      return "f32";
    case CodeType::f16:
      return "f16";
    case CodeType::bf16:
      return "bf16";
    case CodeType::i8:
      return "i8";
    case CodeType::u8:
      return "u8";
    case CodeType::i4:
      return "i4";
    case CodeType::u4:
      return "u4";
    case CodeType::f8_e4m3:
      return "f8_e4m3";
    case CodeType::f8_e5m2:
      return "f8_e5m2";
    case CodeType::f6_e2m3:
      return "f6_e2m3";
    case CodeType::f6_e3m2:
      return "f6_e3m2";
    case CodeType::f4_e2m1:
      return "f4_e2m1";
  }
  return "?";
}
/// The zero point of integer codes whose matrix has no zero points; 0 for the other types.
constexpr int implicit_zero(CodeType type) noexcept {
  return type == CodeType::u8 ? 128 : type == CodeType::u4 ? 8 : 0;
}
/// The type in packed weights: unsigned codes become signed ones, relative to 0 or to their group's zero point.
constexpr CodeType packed_type(CodeType type) noexcept {
  return type == CodeType::u8 ? CodeType::i8 : type == CodeType::u4 ? CodeType::i4 : type;
}
/// f32, f16 or bf16: elements that need no scale.
constexpr bool is_plain(CodeType type) noexcept { return bits(type) >= 16; }

}  // namespace moecl
