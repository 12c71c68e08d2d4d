#pragma once
#include <moecl/code_type.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

namespace moecl {

/// How the values of a panel of 64 columns stand.
enum class PanelLayout : std::uint8_t {
  n_major,  ///< [K][64]: those of one k side by side
  k_major,  ///< [K / 128][64][128]: those of one column side by side, for tensor cores that read 8 bits from local
            ///< memory
  k_words,  ///< [K / w][64][w]: w of one column side by side in 32 bits, for dot products of CPUs. Codes of 4 bits are
            ///< the low halves of four bytes, then the high ones
};
/// "n_major"
const char* name(PanelLayout layout) noexcept;
/// Errors: invalid_argument  there is none of that name
PanelLayout panel_layout_named(const std::string& name);

/// Weight matrices [N, K] of some experts in the layout the grouped products read: panels of 64 output columns,
/// [experts][ceil(N / 64)][a panel]. Columns past N are zero.
///
/// Codes take their bits and no more; where those of one k stand is said in panels.clh. An element is its code's
/// number, or with scales (code - zero) * scale of its column and group of k.
struct PackedWeights {
  static constexpr std::int64_t panel_columns = 64;
  static constexpr std::int64_t k_major_block = 128;    ///< k of a column side by side; K is a multiple
  static constexpr std::uint64_t alignment_bytes = 64;  ///< of `buffer`'s offset: a panel's rows are read as vectors

  BufferView buffer;
  CodeType type = CodeType::f32;  ///< any but u8 and u4: those are packed as i8 and i4
  std::int64_t experts = 0, n = 0, k = 0;

  std::int64_t group = 0;  ///< columns of K that share a scale, without `group_index`; the last group may be shorter
  TensorView scale = {};   ///< optional. Shape: [experts, ceil(N / 64), G, 64] f32, f16, bf16, f8_e4m3, or u8: e8m0
  TensorView zero = {};    ///< optional, of scaled integer codes. Shape: as scale, i16
  /// optional. Shape: [experts, K] i32: the group of each k. Range: [0, G)
  TensorView group_index = {};
  /// k_major: codes of 8 bits, without zero points and group_index. k_words: of 4, 8 or 16 bits, K a multiple of w
  PanelLayout layout = PanelLayout::n_major;
  bool panel_scales = false;  ///< of each panel all columns have the same scales

  /// ceil(n / 64)
  static std::int64_t panels(std::int64_t n) noexcept;
  /// Of the codes. Errors: invalid_argument  negative or overflowing sizes
  static std::uint64_t size_bytes(CodeType type, std::int64_t experts, std::int64_t n, std::int64_t k);
  bool present() const noexcept { return experts != 0; }
  bool grouped() const noexcept { return scale.present(); }
  std::int64_t groups() const noexcept { return grouped() ? scale.shape[2] : 0; }
  /// Shape: [experts, ceil(N / 64), K, 64] of its storage type, or of bytes, 48 or 32, where codes are narrower. In
  /// other layouts it is as large.
  /// Errors: invalid_argument  the buffer is too small for it
  TensorView view() const;
  /// Why a kernel cannot use these weights; empty when it can.
  std::string reject() const;
};

}  // namespace moecl
