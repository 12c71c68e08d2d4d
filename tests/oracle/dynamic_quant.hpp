#pragma once
#include <moecl/dynamic_quant.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

struct QuantizedRow {
  float scale = 0;
  std::vector<std::int8_t> q;
};

/// One finite row in the f32 arithmetic that the rounding order names: exact, not a tolerance.
QuantizedRow dynamic_quant(const std::vector<double>& x, dynamic_quant::Rounding rounding);

}  // namespace moecl::test::oracle
