#include <moecl/dtype.hpp>

#include <array>

namespace moecl {
namespace {

struct Row {
  DType dtype;
  const char* name;
  std::size_t size_bytes;
};

constexpr std::array<Row, 15> rows{{{DType::f64, "f64", 8},
                                    {DType::f32, "f32", 4},
                                    {DType::f16, "f16", 2},
                                    {DType::bf16, "bf16", 2},
                                    {DType::f8_e4m3, "f8_e4m3", 1},
                                    {DType::f8_e5m2, "f8_e5m2", 1},
                                    {DType::i64, "i64", 8},
                                    {DType::i32, "i32", 4},
                                    {DType::i16, "i16", 2},
                                    {DType::i8, "i8", 1},
                                    {DType::u64, "u64", 8},
                                    {DType::u32, "u32", 4},
                                    {DType::u16, "u16", 2},
                                    {DType::u8, "u8", 1},
                                    {DType::boolean, "bool", 1}}};

constexpr bool indexed_by_dtype() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].dtype) != i) return false;
  return true;
}
static_assert(indexed_by_dtype());

}  // namespace

std::size_t size_bytes(DType dtype) noexcept { return rows[static_cast<std::size_t>(dtype)].size_bytes; }
const char* name(DType dtype) noexcept { return rows[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const Row& row : rows)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

bool is_activation_dtype(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

}  // namespace moecl
