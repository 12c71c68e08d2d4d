#pragma once
// The rows of a product, quantized just before it.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/workspace.hpp>

#include <optional>
#include <vector>

#include "host/layer/planned.hpp"
#include "host/layer/weight_upload.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

/// The left side of a product: `a`, `a_scale` and `a_group` of grouped_gemm.
struct ProductRows {
  TensorView rows;
  TensorView scale;  ///< absent: 1
  std::int64_t group = 0;

  ProductRows() = default;
  ProductRows(const TensorView& plain) : rows(plain) {}  // NOLINT(google-explicit-constructor): rows are the left side
};

/// Rows of codes of 8 bits, as products take them.
struct CodeRows {
  DType codes, scale;
  std::int64_t group;  ///< columns that share a scale; 0: all of a row

  std::int64_t scales(std::int64_t width) const noexcept { return group == 0 ? 1 : quotient_up(width, group); }
};
/// What rows that are quantized so become; none where no product takes such codes.
std::optional<CodeRows> code_rows(const OperandQuant& how);

/// What an OperandQuant does to the rows of one product: to codes with scales of their own where the product takes such
/// codes, else to the numbers that the codes stand for. Those are f32, or of codes below 8 bits what the product
/// multiplies fastest: exact of MX formats, else a rounding far below that of the codes.
class RowQuant {
 public:
  /// Rows stay as they are.
  RowQuant() = default;
  /// @param static_scales  What a code of each expert's rows counts, where `how` has static scales; with e4m3 scales
  ///                       what those count.
  /// @param codes          The product takes codes of 8 bits.
  /// @param numbers        What it multiplies fastest: grouped_gemm::row_dtype
  /// Errors: unsupported  zero points, or codes that no activation has; invalid_argument  a static scale is missing
  RowQuant(StreamView stream, const OperandQuant& how, const std::vector<float>& static_scales, bool codes,
           DType numbers);

  /// Errors: invalid_argument  static scales are needed, and one of these is none
  void expect(const std::vector<float>& static_scales) const;
  /// The scales of the rows to come, before the first ones. Errors: as `expect`
  void load(WeightUpload& upload, std::vector<float> static_scales) { load(upload, 0, std::move(static_scales)); }
  /// The same of experts from `first` on.
  void load(WeightUpload& upload, std::int64_t first, std::vector<float> static_scales);

  /// Where an expert's static scale stands; empty where there is none.
  std::vector<BufferView> parts(std::int64_t expert) const {
    if (experts_ == 0) return {};
    return {static_scales_.view().slice(static_cast<std::uint64_t>(expert) * sizeof(float), sizeof(float))};
  }

  struct Layout {
    /// @param rows       Of `run`'s result.
    /// @param overwrite  The rows are f32 and nobody needs them as they are.
    Layout(WorkspaceLayout& workspace, const RowQuant& quant, std::int64_t rows, std::int64_t width, bool overwrite);
    TensorView rows, scale;  ///< absent where rows stay, or are overwritten
    bool overwrite;
  };
  /// Which rows are valid, and whose: as in quantize_groups; all of them without row_ends, and of the one expert. With
  /// `index` they are gathered on the way.
  struct Valid {
    TensorView row_ends;
    std::int64_t rows_per_expert = 0;
    TensorView index = {};
    std::int32_t index_divisor = 1;
  };
  /// What `run` enqueues, absent where rows stay, and the rows that it gives.
  struct Step {
    quantize_groups::Args args;
    ProductRows rows;
  };
  Step step(TensorView x, const Valid& valid, const Layout& layout, BufferView workspace) const;
  /// Async: no kernel, one, or three for one scale of all rows
  ProductRows run(StreamView stream, TensorView x, const Valid& valid, const Layout& layout, BufferView workspace,
                  Planned<quantize_groups::Plan>& plan) const;

  /// Whether a row becomes other numbers for each expert: then rows are gathered first.
  bool is_by_expert() const noexcept { return how_.static_scale; }
  /// Whether rows change at all.
  bool present() const noexcept { return how_.quantized(); }
  /// Whether the product gets codes and their scales.
  bool gives_codes() const noexcept { return codes_; }
  /// "plain", "f8_e4m3 in groups of 128", "f4_e2m1 in groups of 32 with e8m0 scales, as numbers in f32"
  std::string description() const;

 private:
  std::int64_t groups(std::int64_t width) const { return scale_shape(how_, 1, width)[1]; }

  OperandQuant how_;
  std::int64_t experts_ = 0;  ///< that have static scales
  Buffer static_scales_;      ///< Shape: [experts_] f32: what codes count, of e4m3 scales the global scales
  bool codes_ = false;
  DType numbers_ = DType::f32;  ///< that codes stand for, where the product takes no codes
};

}  // namespace moecl
