#pragma once
#include <moecl/code_type.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

namespace moecl {

/// The order of the values in a panel of 64 columns.
enum class PanelLayout : std::uint8_t {
  n_major,  ///< [K][64]: the values of one k are adjacent
  k_major,  ///< [K / 128][64][128]: 128 values of one column are adjacent, for tensor cores that read 8-bit values
            ///< from local memory
  k_words,  ///< [K / w][64][w]: w values of one column fill a word of 32 bits, for dot products of CPUs. Codes of 4
            ///< bits take the low halves of its four bytes first, then the high halves
};
/// "n_major"
const char* name(PanelLayout layout) noexcept;
/// Errors: invalid_argument  no layout has that name
PanelLayout panel_layout_named(const std::string& name);

/// Weight matrices [N, K] of several experts in the layout that the grouped products read: panels of 64 output columns,
/// [experts][ceil(N / 64)][panel]. Columns past N are zero.
///
/// Codes are stored without unused bits; panels.clh says in which order the codes of one k stand. The value of an
/// element is the number of its code. With scales it is (code - zero) * scale, where zero and scale are those of its
/// column and its group along K.
struct PackedWeights {
  static constexpr std::int64_t panel_columns = 64;
  static constexpr std::int64_t k_major_block = 128;    ///< adjacent k of a column in k_major; K is a multiple
  static constexpr std::uint64_t alignment_bytes = 64;  ///< of `buffer`'s offset: a panel's rows are read as vectors

  BufferView buffer;
  CodeType type = CodeType::f32;  ///< any but u8 and u4, which are packed as i8 and i4
  std::int64_t experts = 0, n = 0, k = 0;

  std::int64_t group = 0;  ///< consecutive k that share a scale, without `group_index`; the last group may be shorter
  TensorView scale = {};   ///< optional. Shape: [experts, ceil(N / 64), G, 64] f32, f16, bf16, f8_e4m3, or u8: e8m0
  TensorView zero = {};    ///< optional, for integer codes with scales. Shape: as scale, i16
  /// optional. Shape: [experts, K] i32: the scale group of each k. Range: [0, G)
  TensorView group_index = {};
  /// k_major needs 8-bit codes without zero points and group_index. k_words needs 4, 8 or 16 bits and K a multiple of w
  PanelLayout layout = PanelLayout::n_major;
  bool panel_scales = false;  ///< all columns of a panel have the same scales

  /// ceil(n / 64)
  static std::int64_t panels(std::int64_t n) noexcept;
  /// Size of the codes. Errors: invalid_argument  negative or overflowing sizes
  static std::uint64_t size_bytes(CodeType type, std::int64_t experts, std::int64_t n, std::int64_t k);
  bool present() const noexcept { return experts != 0; }
  bool grouped() const noexcept { return scale.present(); }
  std::int64_t groups() const noexcept { return grouped() ? scale.shape[2] : 0; }
  /// The codes. Shape: [experts, ceil(N / 64), K, 64] of the storage type; for codes of 6 or 4 bits u8 with a last
  /// dimension of 48 or 32. The size is the same in all layouts.
  /// Errors: invalid_argument  the buffer is too small
  TensorView view() const;
  /// Why a kernel cannot use these weights; empty when it can.
  std::string reject() const;
};

}  // namespace moecl
