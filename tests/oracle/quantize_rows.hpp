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

/// One finite row in the arithmetic that scheme and rounding name: exact, not a tolerance. `levels`: 127, or 7 of int4.
/// Scheme::static_f16 takes scale and offset from `given`.
QuantizedRow quantize_row(const std::vector<double>& x, quantize_rows::Rounding rounding,
                          quantize_rows::Scheme scheme = quantize_rows::Scheme::symmetric, float levels = 127,
                          const QuantizedRow& given = {});

}  // namespace moecl::test::oracle
