#pragma once
// Checks, compile options and properties of the operands of a grouped product, independent of the variant that runs.
#include <moecl/grouped_product.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>

namespace moecl::grouped_gemm {

/// The part of `reject` that holds for every variant: why the operands are invalid; empty if they are valid.
std::string reject_operands(const Args& args);
/// -D definitions for the types of rows and weights, their scales for groups of K, and the panel layout.
std::string operand_options(const Args& args);
/// -D definition for the panel layout; empty for n_major.
const char* layout_option(PanelLayout layout) noexcept;

/// Whether the scales suit a CPU's dot products: of groups of the weights only, each a run of a multiple of 16 k.
inline bool has_runs_of_groups(const Args& args) {
  return args.a_group == 0 &&
         (!args.weights.grouped() || (!args.weights.group_index.present() && args.weights.group % 16 == 0));
}
inline bool is_vnni_product(const Args& args) {
  return args.a.dtype == DType::i8 && (args.weights.type == CodeType::i8 || args.weights.type == CodeType::i4) &&
         args.a_zero_point == 0 && has_runs_of_groups(args);
}
inline bool is_bf16_product(const Args& args) {
  const CodeType type = args.weights.type;
  return args.a.dtype == DType::bf16 && (type == CodeType::bf16 || bits(type) <= 8) && has_runs_of_groups(args);
}
/// Operands that the kernel for AVX2 multiplies.
inline bool is_avx2_product(const Args& args) {
  return !args.weights.grouped() || (!args.weights.group_index.present() && args.weights.group % 16 == 0);
}
inline bool is_f8(DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; }
/// Whether a byte of `a` holds two codes.
inline bool a_is_f4(const Args& args) { return args.a.dtype == DType::u8; }
/// Operands with rows of f8 or f4 codes that a CPU's bf16 dot products multiply. A group of the rows must consist of
/// whole groups of the weights.
inline bool is_code_rows_product(const Args& args) {
  const PackedWeights& weights = args.weights;
  return (is_f8(args.a.dtype) || a_is_f4(args)) && bits(weights.type) <= 8 && !weights.zero.present() &&
         weights.k % 2 == 0 && !args.k_ends.present() && is_avx2_product(args) &&
         (args.a_group == 0 || (weights.grouped() && args.a_group % weights.group == 0));
}
/// Operands with f16 or bf16 rows that dot products of bytes multiply. The 4-bit weights are integers, or multiples of
/// one half (f4_e2m1).
inline bool is_digits_product(const Args& args) {
  const CodeType type = args.weights.type;
  return (args.a.dtype == DType::f16 || args.a.dtype == DType::bf16) &&
         (type == CodeType::i4 || type == CodeType::f4_e2m1) && args.weights.layout == PanelLayout::k_words &&
         has_runs_of_groups(args);
}

/// Whether both start at the same element.
inline bool is_same(const TensorView& x, const TensorView& y) {
  return x.buffer.handle == y.buffer.handle && x.offset_elements() == y.offset_elements() && x.dtype == y.dtype;
}
/// Whether every row starts at a multiple of `elements` elements.
inline bool is_aligned(const TensorView& rows, std::int64_t elements) {
  return rows.stride[0] % elements == 0 && rows.offset_elements() % static_cast<std::uint64_t>(elements) == 0;
}
/// Whether every row starts at a multiple of 16 bytes.
inline bool is_aligned_to_16_bytes(const TensorView& rows) {
  return is_aligned(rows, 16 / static_cast<std::int64_t>(size_bytes(rows.dtype)));
}
/// Stride between the values of neighbouring columns; 0 if all columns share one value.
inline std::int64_t column_stride(const TensorView& vector) { return vector.shape[1] == 1 ? 0 : vector.stride[1]; }
/// Operands that tensor cores multiply as they are: f16 or bf16 on both sides.
inline bool is_tensor_core_product(const Args& args) {
  const bool f16 = args.a.dtype == DType::f16 && args.weights.type == CodeType::f16;
  return (f16 || (args.a.dtype == DType::bf16 && args.weights.type == CodeType::bf16)) && args.a_group == 0 &&
         !args.weights.grouped() && args.weights.layout == PanelLayout::n_major && !args.k_ends.present() &&
         is_activation_dtype(args.out.dtype);
}

/// Whether groups of `group` k fit the K-steps of the tensor-core kernels for rows of `row_bits` bits: a group consists
/// of whole matrix instructions (32 bytes of a row), and it divides a K-step (128 bytes) or is a multiple of one.
inline bool is_step_group(std::int64_t group, std::int64_t row_bits) {
  const std::int64_t step = 1024 / row_bits, product = 256 / row_bits;
  return group == 0 || (group % product == 0 && (step % group == 0 || group % step == 0));
}
/// Operands with weights that are codes, which tensor cores multiply in the type of the rows.
inline bool is_code_product(const Args& args) {
  const PackedWeights& weights = args.weights;
  const auto one_of = [&weights](std::initializer_list<CodeType> types) {
    return std::find(types.begin(), types.end(), weights.type) != types.end();
  };
  const bool wide = args.a.dtype == DType::f16 || args.a.dtype == DType::bf16;
  const bool types =
      (args.a.dtype == DType::i8 && args.a_zero_point == 0 && one_of({CodeType::i8, CodeType::i4})) ||
      (args.a.dtype == DType::f8_e4m3 && one_of({CodeType::f8_e4m3})) ||
      (args.a.dtype == DType::f8_e5m2 && one_of({CodeType::f8_e5m2})) ||
      (wide && one_of({CodeType::i8, CodeType::i4, CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f4_e2m1}));
  const std::int64_t bits = wide ? 16 : 8, group = weights.grouped() ? weights.group : 0;
  const auto [fewer, more] = std::minmax(group, args.a_group);
  const bool groups = is_step_group(group, bits) && is_step_group(args.a_group, bits) &&
                      (fewer == 0 || more % fewer == 0) && !weights.group_index.present() &&
                      (!weights.zero.present() || (wide && group % 32 == 0)) &&
                      weights.scale.offset_elements() % 2 == 0 &&  // one access reads two columns
                      args.a_scale.shape[0] * args.a_scale.stride[0] <= INT32_MAX;
  return types && groups && weights.layout != PanelLayout::k_words &&
         !(wide && weights.layout == PanelLayout::k_major) && !args.k_ends.present() &&
         is_activation_dtype(args.out.dtype);
}
inline bool has_groups(const Args& args) { return args.weights.grouped() || args.a_group != 0; }
/// Number of experts of the whole layer. The weights may hold only a segment of them.
inline std::int64_t experts_of(const Args& args) { return args.row_ends.present() ? args.row_ends.shape[0] : 1; }
/// Products with their own rows, scales and bias: one for each entry of `slots`, window of k, or packed matrix.
inline std::int64_t products_of(const Args& args) {
  if (args.slots.present()) return args.slots.shape[0];
  return args.k_ends.present() ? args.k_ends.shape[0] : args.weights.experts;
}
/// Columns of `out`.
inline std::int64_t output_width(const Args& args) {
  return args.activation && args.activation->gated ? args.weights.n / 2 : args.weights.n;
}
/// The part of `reject` about an activation that holds for every variant.
std::string reject_activation(const Args& args, const Activation& activation);

}  // namespace moecl::grouped_gemm
