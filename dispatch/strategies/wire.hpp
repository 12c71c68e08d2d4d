#pragma once
// Rows on their way between ranks: as they are, or as codes with scales.
#include <moecl/strategy.hpp>
#include <moecl/workspace.hpp>

#include <optional>

namespace moecl {

/// What a row consists of while it travels.
struct WireRow {
  DType codes = DType::f32;    ///< without a scale: the values themselves
  std::optional<DType> scale;  ///< of the codes
  std::int64_t group = 0;      ///< columns that share a scale; 0: all of them
  OperandQuant how = {};       ///< by which numbers become codes; not quantized: those on MC2's way home

  /// A hidden state on its way to the experts.
  static WireRow to_experts(const ExpertProblem& problem, const TokensIn& tokens);
  /// A row of results on MC2's way back, of `values` unless it is quantized. Scales are of the hidden states' type.
  /// Source: comm_quant_mode of npu_moe_distribute_combine
  static WireRow to_home(const ExpertProblem& problem, DType values);
};

/// Some of them, in device memory.
struct WireRows {
  TensorView codes;  ///< Shape: [R, H]
  TensorView scale;  ///< optional. Shape: [R], or with `group` [R, ceil(H / group)]
  std::int64_t group = 0;
  OperandQuant how = {};  ///< as in WireRow

  struct Layout {
    Layout(WorkspaceLayout& workspace, const WireRow& row, std::int64_t row_count, std::int64_t hidden_size);
    WireRows in(BufferView memory) const;

    WireRow row;
    TensorView codes, scale;
  };

  /// Calls `move` for the codes of both and, where there are any, their scales.
  template <class Move>
  static void each(const WireRows& from, const WireRows& to, Move move) {
    move(from.codes, to.codes);
    if (from.scale.present()) move(from.scale, to.scale);
  }
};

/// to[j] = from[index[j] / divisor], codes and scales as they are. Row ends and rows_per_expert as in gather_rows
void gather(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
            std::int64_t rows_per_expert, const WireRows& to);
/// The same, quantized unless `from` is already or `to` is not to be.
/// @param index  optional: as they stand. @param row_ends  optional: rows past the last are left out
void pack_rows(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
               const WireRows& to);
/// `rows` as they are where they may travel so, else packed at `place`. @param row_ends  as in pack_rows
WireRows packed(StreamView stream, const WireRows& rows, const WireRows::Layout& place, BufferView memory,
                TensorView row_ends = {});

}  // namespace moecl
