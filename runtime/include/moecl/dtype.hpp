#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moecl {

/// Element types of tensors in device memory and in files.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};

/// Units: bytes of one element.
std::size_t size_bytes(DType dtype) noexcept;
/// Lower-case name as the command line spells it: "f32", "bf16", ...
const char* name(DType dtype) noexcept;
/// The dtype of that name; nullopt when there is none.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;
/// Whether activations and unquantized weights may have this type: f32, f16 and bf16.
bool is_activation_dtype(DType dtype) noexcept;

}  // namespace moecl
