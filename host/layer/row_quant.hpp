#pragma once
// Quantizes the rows of a product just before it.
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

/// The left operand of a product: `a`, `a_scale` and `a_group` of grouped_gemm.
struct ProductRows {
  TensorView rows;
  TensorView scale;  ///< absent: 1
  std::int64_t group = 0;

  ProductRows() = default;
  ProductRows(const TensorView& plain) : rows(plain) {}  // NOLINT(google-explicit-constructor): rows are the left side
};

/// The formats of rows of 8-bit codes that products take.
struct CodeRows {
  DType codes, scale;
  std::int64_t group;  ///< columns that share a scale; 0: all of a row

  std::int64_t scales(std::int64_t width) const noexcept { return group == 0 ? 1 : quotient_up(width, group); }
};
/// The formats that `how` gives. None if no product takes such codes.
std::optional<CodeRows> code_rows(const OperandQuant& how);

/// Applies an OperandQuant to the rows of one product. If the product takes such codes, rows become codes with scales.
/// Otherwise they become the numbers that the codes stand for: in f32 or, for codes below 8 bits, in the dtype that the
/// product multiplies fastest. That dtype is exact for MX formats, and otherwise rounds far less than the codes do.
class RowQuant {
 public:
  /// Rows stay as they are.
  RowQuant() = default;
  /// @param static_scales  For static scales: the scale of each expert's rows; with e4m3 scales, the scale of those
  /// scales
  /// @param codes          The product takes 8-bit codes.
  /// @param numbers        The dtype that the product multiplies fastest: grouped_gemm::row_dtype
  /// Errors: unsupported  zero points, or codes that activations cannot have; invalid_argument  a static scale is
  ///         missing
  RowQuant(StreamView stream, const OperandQuant& how, const std::vector<float>& static_scales, bool codes,
           DType numbers);

  /// Errors: invalid_argument  static scales are needed, and one of these is missing (not positive)
  void expect(const std::vector<float>& static_scales) const;
  /// Loads the static scales. Must precede the first rows. Errors: as `expect`
  void load(WeightUpload& upload, std::vector<float> static_scales) { load(upload, 0, std::move(static_scales)); }
  /// The same for the experts from `first` on.
  void load(WeightUpload& upload, std::int64_t first, std::vector<float> static_scales);

  /// The memory of an expert's static scale; empty if there is none.
  std::vector<BufferView> parts(std::int64_t expert) const {
    if (experts_ == 0) return {};
    return {static_scales_.view().slice(static_cast<std::uint64_t>(expert) * sizeof(float), sizeof(float))};
  }

  struct Layout {
    /// @param rows       Number of rows of `run`'s result
    /// @param overwrite  The rows are f32, and nothing needs the plain rows afterwards.
    Layout(WorkspaceLayout& workspace, const RowQuant& quant, std::int64_t rows, std::int64_t width, bool overwrite);
    TensorView rows, scale;  ///< absent if rows stay as they are, or are overwritten
    bool overwrite;
  };
  /// Which rows are valid, and to which experts they belong, as in quantize_groups. Without row_ends all rows are valid
  /// and belong to one expert. With `index`, rows are gathered at the same time.
  struct Valid {
    TensorView row_ends;
    std::int64_t rows_per_expert = 0;
    TensorView index = {};
    std::int32_t index_divisor = 1;
  };
  /// What `run` enqueues (absent if rows stay as they are), and the rows that it returns.
  struct Step {
    quantize_groups::Args args;
    ProductRows rows;
  };
  Step step(TensorView x, const Valid& valid, const Layout& layout, BufferView workspace) const;
  /// Async: no kernel, one kernel, or three if all rows share one scale
  ProductRows run(StreamView stream, TensorView x, const Valid& valid, const Layout& layout, BufferView workspace,
                  Planned<quantize_groups::Plan>& plan) const;

  /// Whether the result for a row depends on its expert (static scales). Then rows are gathered first.
  bool is_by_expert() const noexcept { return how_.static_scale; }
  /// Whether rows change at all.
  bool present() const noexcept { return how_.quantized(); }
  /// Whether the product gets codes and scales.
  bool gives_codes() const noexcept { return codes_; }
  /// "plain", "f8_e4m3 in groups of 128", "f4_e2m1 in groups of 32 with e8m0 scales, as numbers in f32"
  std::string description() const;

 private:
  std::int64_t groups(std::int64_t width) const { return scale_shape(how_, 1, width)[1]; }

  OperandQuant how_;
  std::int64_t experts_ = 0;  ///< number of experts with static scales
  Buffer static_scales_;      ///< Shape: [experts_] f32: scales of the codes; for e4m3 scales, the global scales
  bool codes_ = false;
  DType numbers_ = DType::f32;  ///< dtype of the numbers, if the product takes no codes
};

}  // namespace moecl
