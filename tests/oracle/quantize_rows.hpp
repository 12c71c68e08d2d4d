#pragma once
#include <moecl/quantize_rows.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

struct QuantizedRow {
  float scale = 0;
  std::vector<std::int8_t> q;
  float offset = 0;
};

/// One finite row in the arithmetic that scheme and rounding name. The comparison is exact, without tolerance.
/// `levels`: 127, or 7 for int4. Scheme::static_f16 takes scale and offset from `given`.
QuantizedRow quantize_row(const std::vector<double>& x, quantize_rows::Rounding rounding,
                          quantize_rows::Scheme scheme = quantize_rows::Scheme::symmetric, float levels = 127,
                          const QuantizedRow& given = {});

/// The code of a number, by a search among all numbers of the format. Larger numbers than the largest give the largest;
/// in hif8 they give infinity unless `saturates`.
std::uint8_t float_code(float x, quantize_rows::Codes codes, bool saturates = true);

struct FloatRow {
  std::vector<float> scale;
  std::vector<std::uint8_t> q;
};

/// The rules by which a row is quantized to 8-bit floats.
struct FloatRules {
  quantize_rows::Codes codes = quantize_rows::Codes::e4m3;
  quantize_rows::Rounding rounding = quantize_rows::Rounding::divide;
  std::size_t group = 0;  ///< columns that share a scale; 0: all
  bool power_of_two = false;
  float least_amax = 0;
};
FloatRow quantize_row_to_floats(const std::vector<double>& x, const FloatRules& rules);

}  // namespace moecl::test::oracle
