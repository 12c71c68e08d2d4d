#include "host/layer/unpack_weights.hpp"

#include <moecl/bf16.hpp>
#include <moecl/code_numbers.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>

#include <cstdint>
#include <cstring>

#include "kernels_cl/gemm/panel_order.h"
#include "runtime/check.hpp"

namespace moecl {
namespace {

template <class T>
T read_at(const std::byte* values, std::int64_t index) {
  T value;
  std::memcpy(&value, values + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

/// The code of a column in a row of a panel, for codes narrower than a byte. The positions are those of panels.clh.
int narrow_code(const std::byte* row, std::int64_t column, int width) {
  const auto byte = [&](std::int64_t at) { return std::to_integer<int>(row[at]); };
  const int low = byte(column / 32 * 16 + column % 16) >> (column / 16 % 2 * 4) & 15;
  return width == 4 ? low : low | (byte(32 + column % 16) >> (column / 16 * 2) & 3) << 4;
}

float narrow_number(int code, CodeType type) {
  return is_integer(type) ? static_cast<float>((code ^ 8) - 8)
                          : minifloat_of(type).decode(static_cast<std::uint8_t>(code));
}

/// The number at (k, column) of a panel, before its scale.
float code_number(const std::byte* panel, CodeType type, PanelLayout layout, int k, int column) {
  const int width = bits(type);
  if (layout == PanelLayout::k_major) return number_at(panel, *storage_dtype(type), k_major_at(k, column));
  if (layout == PanelLayout::k_words) {
    const auto word = read_at<std::uint32_t>(panel, k_word_at(k, column, width)) >> k_word_shift(k, width);
    if (width == 4) return narrow_number(static_cast<int>(word & 15U), type);
    const auto value = static_cast<std::uint16_t>(word);
    return number_at(reinterpret_cast<const std::byte*>(&value), *storage_dtype(type), 0);
  }
  const std::byte* row = panel + std::int64_t{k} * PackedWeights::panel_columns * width / 8;
  return width >= 8 ? number_at(row, *storage_dtype(type), column)
                    : narrow_number(narrow_code(row, column, width), type);
}

}  // namespace

float number_at(const std::byte* values, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return read_at<float>(values, index);
    case DType::f16:
      return f16_to_f32(read_at<std::uint16_t>(values, index));
    case DType::bf16:
      return bf16_to_f32(read_at<std::uint16_t>(values, index));
    case DType::i8:
      return read_at<std::int8_t>(values, index);
    case DType::i16:
      return read_at<std::int16_t>(values, index);
    case DType::f8_e4m3:
      return fp8_e4m3fn.decode(read_at<std::uint8_t>(values, index));
    case DType::f8_e5m2:
      return fp8_e5m2.decode(read_at<std::uint8_t>(values, index));
    case DType::u8:
      return e8m0_to_f32(read_at<std::uint8_t>(values, index));
    default:
      fail(ErrorCode::unsupported, "unpack: {} are no weights", name(dtype));
  }
}

std::vector<float> unpack_weights(const PackedWeights& format, const PackedBytes& bytes) {
  constexpr std::int64_t panel = PackedWeights::panel_columns;
  const std::int64_t groups = format.groups(), row_bytes = panel * bits(format.type) / 8;
  std::vector<float> numbers(static_cast<std::size_t>(format.n * format.k));
  for (std::int64_t n = 0; n < format.n; ++n)
    for (std::int64_t k = 0; k < format.k; ++k) {
      const std::int64_t column = n % panel;
      const std::byte* of_panel = bytes.codes.data() + n / panel * format.k * row_bytes;
      float number = code_number(of_panel, format.type, format.layout, static_cast<int>(k), static_cast<int>(column));
      if (format.grouped()) {
        const std::int64_t group =
            format.group_index.present() ? read_at<std::int32_t>(bytes.group_index.data(), k) : k / format.group;
        const std::int64_t at = (n / panel * groups + group) * panel + column;
        if (format.zero.present()) number -= number_at(bytes.zero.data(), DType::i16, at);
        number *= number_at(bytes.scale.data(), format.scale.dtype, at);
      }
      numbers[static_cast<std::size_t>(n * format.k + k)] = number;
    }
  return numbers;
}

}  // namespace moecl
