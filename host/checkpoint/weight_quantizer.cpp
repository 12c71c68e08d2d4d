#include "host/checkpoint/weight_quantizer.hpp"

#include <moecl/bf16.hpp>
#include <moecl/code_numbers.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp8.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/check.hpp"

namespace moecl {

/// The matrix must be in memory.
float element(const HostMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::byte* at =
      matrix.data.memory() +
      static_cast<std::size_t>(row * matrix.row_stride + column * matrix.column_stride) * size_bytes(matrix.dtype);
  float value;
  if (matrix.dtype == DType::f32) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return matrix.dtype == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

namespace {

/// The scale and the zero point of one group.
struct Group {
  float scale = 1;
  float factor = 0;             ///< NVFP4 multiplies values by it; other schemes divide by the scale
  std::uint8_t scale_code = 0;  ///< the stored scale where scales are e8m0 or e4m3
  int zero = 0;
};

class Quantizer {
 public:
  explicit Quantizer(const OperandQuant& to)
      : to_(to), type_(*to.type), integer_(is_integer(type_)), format_(minifloat_of(type_)) {}

  void set_global(float amax) {
    if (to_.scale == ScaleFormat::e4m3 && amax > 0) global_ = fp8_e4m3fn.decode(fp8_e4m3fn.largest) * 6 / amax;
  }
  float global() const { return global_; }

  Group group_of(float least, float most) const {
    Group group;
    const float amax = std::max(-least, most);
    if (to_.scale == ScaleFormat::e8m0) {
      group.scale_code = amax > 0 ? mx_exponent(amax) : 0;
      group.scale = e8m0_to_f32(group.scale_code);
    } else if (to_.scale == ScaleFormat::e4m3) {
      group.scale_code = fp8_e4m3fn.encode(global_ * amax / 6);
      const float scale = fp8_e4m3fn.decode(group.scale_code);
      group.scale = scale / global_;
      group.factor = scale > 0 ? global_ / scale : 0;
    } else if (to_.zero_points) {
      const float low = std::min(least, 0.0F), steps = static_cast<float>((1 << bits(type_)) - 1);
      group.scale = (std::max(most, 0.0F) - low) / steps;
      if (group.scale > 0) group.zero = static_cast<int>(std::nearbyint(-low / group.scale)) + least_code();
    } else {
      group.scale = amax / (integer_ ? static_cast<float>(largest_code()) : format_.decode(format_.largest));
      group.zero = implicit_zero(type_);
    }
    return group;
  }
  unsigned code(float value, const Group& group) const {
    if (to_.scale == ScaleFormat::e4m3) return format_.encode(value * group.factor);
    if (!integer_) return format_.encode(group.scale > 0 ? value / group.scale : 0.0F);
    const int q = group.scale > 0 ? static_cast<int>(std::nearbyint(value / group.scale)) : 0;
    const int least = to_.zero_points ? least_code() : group.zero - largest_code();
    const int most = to_.zero_points ? least_code() + (1 << bits(type_)) - 1 : group.zero + largest_code();
    return static_cast<unsigned>(std::clamp(q + group.zero, least, most)) & ((1U << bits(type_)) - 1);
  }

 private:
  bool is_signed() const { return type_ == CodeType::i8 || type_ == CodeType::i4; }
  int largest_code() const { return (1 << (bits(type_) - 1)) - 1; }
  int least_code() const { return is_signed() ? -largest_code() - 1 : 0; }
  std::uint8_t mx_exponent(float amax) const {
    return static_cast<std::uint8_t>(std::clamp(std::ilogb(amax) - format_.max_exponent() + 127, 0, 254));
  }

  OperandQuant to_;
  CodeType type_;
  bool integer_;
  Minifloat format_;
  float global_ = 1;
};

template <class T>
void append(std::vector<std::uint8_t>& to, T value) {
  std::uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  to.insert(to.end(), bytes, bytes + sizeof(T));
}

void put(std::vector<std::uint8_t>& codes, std::int64_t position, unsigned code) {
  const auto byte = static_cast<std::size_t>(position / 8);
  const unsigned shifted = code << (position % 8);
  codes[byte] = static_cast<std::uint8_t>(codes[byte] | shifted);
  if (shifted > 0xff) codes[byte + 1] = static_cast<std::uint8_t>(codes[byte + 1] | shifted >> 8);
}

}  // namespace

QuantizedWeights quantize_weights(const HostMatrix& given, const OperandQuant& to) {
  const HostMatrix matrix = given.in_memory();
  const std::string why = reject(QuantScheme{{}, to});
  require(to.quantized() && why.empty(), "quantize: {}", to.quantized() ? why : "plain weights");
  require(describe(to) == describe(OperandQuant{to.type, to.group, to.scale, to.zero_points}),
          "quantize: scales that are rounded or have limits are made on devices alone, got {}", describe(to));
  const int width = bits(*to.type), unit_codes = width == 8 ? 1 : width == 4 ? 2 : 4;
  require(matrix.columns % unit_codes == 0, "quantize: {} columns of {} codes do not fill bytes", matrix.columns,
          name(*to.type));
  const std::int64_t rows = matrix.rows, columns = matrix.columns;
  const std::vector<std::int64_t> shape = scale_shape(to, rows, columns);
  const std::int64_t group_rows = to.group.rows == ScaleGroup::whole ? rows : to.group.rows;
  const std::int64_t group_columns = to.group.columns == ScaleGroup::whole ? columns : to.group.columns;

  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  float amax = 0;
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t k = 0; k < columns; ++k) {
      const float value = element(matrix, n, k);
      if (!std::isfinite(value)) fail(ErrorCode::invalid_data, "quantize: element [{}, {}] is {}", n, k, value);
      values[static_cast<std::size_t>(n * columns + k)] = value;
      amax = std::max(amax, std::abs(value));
    }
  Quantizer quantizer(to);
  quantizer.set_global(amax);

  QuantizedWeights result;
  result.codes.resize(static_cast<std::size_t>(rows * columns * width / 8));
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const std::int64_t last_row = std::min(rows, (i + 1) * group_rows);
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      const std::int64_t last_column = std::min(columns, (j + 1) * group_columns);
      float least = values[static_cast<std::size_t>(i * group_rows * columns + j * group_columns)], most = least;
      for (std::int64_t n = i * group_rows; n < last_row; ++n) {
        const auto [low, high] = std::minmax_element(values.begin() + n * columns + j * group_columns,
                                                     values.begin() + n * columns + last_column);
        least = std::min(least, *low);
        most = std::max(most, *high);
      }
      const Group group = quantizer.group_of(least, most);
      if (to.scale == ScaleFormat::real)
        append(result.scale, group.scale);
      else
        result.scale.push_back(group.scale_code);
      if (to.zero_points) result.zero.push_back(static_cast<std::uint8_t>(group.zero));
      for (std::int64_t n = i * group_rows; n < last_row; ++n)
        for (std::int64_t k = j * group_columns; k < last_column; ++k) {
          put(result.codes, (n * columns + k) * width,
              quantizer.code(values[static_cast<std::size_t>(n * columns + k)], group));
        }
    }
  }

  WeightMatrix& quantized = result.matrix;
  CodeMatrix& codes = quantized.codes;
  codes.data = result.codes.data();
  codes.type = *to.type;
  codes.rows = rows;
  codes.columns = columns;
  codes.unit_bytes = width == 6 ? 3 : 1;
  codes.unit_codes = unit_codes;
  codes.row_stride = columns / unit_codes;
  quantized.group = to.group;
  const DType scale_type = to.scale == ScaleFormat::real   ? DType::f32
                           : to.scale == ScaleFormat::e8m0 ? DType::u8
                                                           : DType::f8_e4m3;
  quantized.scale = HostMatrix(result.scale.data(), scale_type, shape[0], shape[1]);
  quantized.global_scale = 1 / quantizer.global();
  if (to.zero_points) {
    CodeMatrix& zero = quantized.zero;
    zero.data = result.zero.data();
    zero.type = codes.type == CodeType::u4 ? CodeType::u8 : codes.type == CodeType::i4 ? CodeType::i8 : codes.type;
    zero.rows = shape[0];
    zero.columns = zero.row_stride = shape[1];
  }
  return result;
}

}  // namespace moecl
