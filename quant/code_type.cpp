#include <moecl/code_type.hpp>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr const char* names[] = {"f32", "f16",     "bf16",    "i8",      "u8",      "i4",
                                 "u4",  "f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1"};

}  // namespace

const char* name(CodeType type) noexcept { return names[static_cast<std::size_t>(type)]; }

std::optional<DType> storage_dtype(CodeType type) noexcept { return dtype_from_name(name(type)); }

CodeType code_type(DType dtype) {
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (storage_dtype(static_cast<CodeType>(i)) == dtype) return static_cast<CodeType>(i);
  fail(ErrorCode::invalid_argument, "weights: expected f32, f16, bf16, i8, u8, f8_e4m3 or f8_e5m2, got {}",
       name(dtype));
}

}  // namespace moecl
