#include <moecl/code_type.hpp>

#include "runtime/check.hpp"

namespace moecl {

std::optional<DType> storage_dtype(CodeType type) noexcept { return dtype_from_name(name(type)); }

CodeType code_type(DType dtype) {
  for (const CodeType type :
       {CodeType::f32, CodeType::f16, CodeType::bf16, CodeType::i8, CodeType::u8, CodeType::f8_e4m3, CodeType::f8_e5m2})
    if (storage_dtype(type) == dtype) return type;
  fail(ErrorCode::invalid_argument, "weights: expected f32, f16, bf16, i8, u8, f8_e4m3 or f8_e5m2, got {}",
       name(dtype));
}

}  // namespace moecl
