#include "host/layer/unpack_weights.hpp"

#include <moecl/bf16.hpp>
#include <moecl/code_numbers.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>

#include <cstdint>
#include <cstring>

#include "runtime/check.hpp"

namespace moecl {
namespace {

template <class T>
T read_at(const std::byte* values, std::int64_t index) {
  T value;
  std::memcpy(&value, values + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

/// Of codes narrower than a byte: where panels.clh says that the one of a column stands in its row of a panel.
int narrow_code(const std::byte* row, std::int64_t column, int width) {
  const auto byte = [&](std::int64_t at) { return std::to_integer<int>(row[at]); };
  const int low = byte(column / 32 * 16 + column % 16) >> (column / 16 % 2 * 4) & 15;
  return width == 4 ? low : low | (byte(32 + column % 16) >> (column / 16 * 2) & 3) << 4;
}

/// Where panels.clh says that the 8-bit code of (k, column) stands in a K-major panel.
std::int64_t k_major_at(std::int64_t k, std::int64_t column) {
  constexpr std::int64_t block = PackedWeights::k_major_block;
  const std::int64_t line = column / 16 * 16 + column % 2 * 8 + column % 16 / 2;
  return k / block * (block * PackedWeights::panel_columns) + line * block + k % block;
}

float code_number(const std::byte* row, CodeType type, std::int64_t column) {
  if (bits(type) >= 8) return number_at(row, *storage_dtype(type), column);
  const int code = narrow_code(row, column, bits(type));
  return is_integer(type) ? static_cast<float>((code ^ 8) - 8)
                          : minifloat_of(type).decode(static_cast<std::uint8_t>(code));
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
      float number = format.layout == PanelLayout::k_major ? code_number(of_panel, format.type, k_major_at(k, column))
                                                           : code_number(of_panel + k * row_bytes, format.type, column);
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
