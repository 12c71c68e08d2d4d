#pragma once
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <string_view>

namespace moecl {

/// How the rows of a layer travel between ranks.
enum class WireFormat : std::uint8_t {
  none,  ///< hidden states in their own type, the experts' results in f32
  int8,  ///< hidden states as codes, a scale a row; MC2 also returns results as codes, with a scale for 8 columns
  fp8,   ///< hidden states as f8_e4m3 with a scale a row; results return in f32
  mxfp8  ///< hidden states as f8_e4m3 with an e8m0 scale for each 32 columns; results return in f32
};
/// "none", "int8", "fp8", "mxfp8"
const char* name(WireFormat format) noexcept;
/// Errors: invalid_argument  no format of that name
WireFormat wire_format_from_name(std::string_view text);
/// The codes that hidden states travel as; with `none` they are not quantized.
OperandQuant codes_of(WireFormat format);
/// Whether codes of `how` can travel in `format`: only the rule and the limits of scales may differ from `codes_of`.
bool goes_as(WireFormat format, const OperandQuant& how);

}  // namespace moecl
