#pragma once
// The format of rows that travel between ranks: plain values, or codes with scales.
#include <moecl/strategy.hpp>
#include <moecl/workspace.hpp>

#include <optional>

namespace moecl {

/// The format of one row while it travels.
struct WireRow {
  DType codes = DType::f32;    ///< type of the codes; without a scale: of the plain values
  std::optional<DType> scale;  ///< type of the scales of the codes
  std::int64_t group = 0;      ///< columns that share a scale; 0: all of them
  OperandQuant how = {};       ///< how values are quantized; not quantized() for codes on MC2's way home

  /// Format of a hidden state on its way to the experts.
  static WireRow to_experts(const ExpertProblem& problem, const TokensIn& tokens);
  /// Format of a row of results on MC2's way back: of type `values` unless the wire quantizes it. Scales then have the
  /// type of the hidden states. Source: comm_quant_mode of npu_moe_distribute_combine
  static WireRow to_home(const ExpertProblem& problem, DType values);
};

/// Rows in device memory.
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

  /// Calls `move` for the codes of `from` and `to` and, if there are scales, for their scales.
  template <class Move>
  static void each(const WireRows& from, const WireRows& to, Move move) {
    move(from.codes, to.codes);
    if (from.scale.present()) move(from.scale, to.scale);
  }
};

/// to[j] = from[index[j] / divisor]; codes and scales are copied unchanged. Row ends and rows_per_expert as in
/// gather_rows
void gather(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
            std::int64_t rows_per_expert, const WireRows& to);
/// The same, and quantizes unless `from` is already quantized or `to` has plain values.
/// @param index  optional: none keeps the order. @param row_ends  optional: rows past the last end are left out
void pack_rows(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
               const WireRows& to);
/// `rows` unchanged if they may travel as they are, otherwise packed at `place`. @param row_ends  as in pack_rows
WireRows packed(StreamView stream, const WireRows& rows, const WireRows::Layout& place, BufferView memory,
                TensorView row_ends = {});

}  // namespace moecl
