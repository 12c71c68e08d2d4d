#pragma once
// The format in which the matrices of a layer's weights are stored on a device.
#include <moecl/moe_weights.hpp>
#include <moecl/packed_weights.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moecl {

/// Matrices [*, K] that are packed side by side as one matrix [N, K]: gate and up, or one alone.
using MatrixStack = std::vector<WeightMatrix>;
/// The matrices and the biases of a network's first product: those of gate and up, or of up alone.
MatrixStack first_matrices(const ExpertMatrices& network);
std::vector<HostMatrix> first_biases(const ExpertMatrices& network);

/// The format that the stacks of all experts share.
struct WeightFormat {
  CodeType type = CodeType::f32;
  DType scale = DType::f32;   ///< of the scales of groups of K, if there are groups
  std::int64_t groups = 0;    ///< groups of K with scales; 0: scales, if any, are for whole columns
  std::int64_t group = 0;     ///< elements of K in a group; 0: `group_index` maps each k to its group
  bool zero = false;          ///< there are zero points beside the scales
  bool column_scale = false;  ///< there are scales that multiply the sums, one per column
  bool panel_scales = false;  ///< the columns of a panel share the scales of groups
  PanelLayout layout = PanelLayout::n_major;

  /// The format of `stacks`; plain matrices are stored as `plain`. Errors: invalid_argument  their formats differ
  static WeightFormat of(const std::vector<MatrixStack>& stacks, DType plain);
  /// The format of plain matrices that are quantized as `quantized` while they are packed.
  static WeightFormat of(const OperandQuant& quantized, const MatrixStack& plain);
  /// Whether matrices of format `other` can be packed into memory of this format. A missing column scale is stored as
  /// 1. `other` may share scales within panels although this format does not. The layout is the one of this format.
  bool holds(WeightFormat other) const;
  bool operator==(const WeightFormat& other) const = default;
  /// Device memory of one expert [n, k], with everything of it that is resident.
  std::uint64_t size_bytes(std::int64_t n, std::int64_t k) const;
  /// "i4, scales f16 of 128 columns, zero points"
  std::string describe() const;
};

/// Joins the formats of gate/up and of down, in words. Equal formats appear once.
std::string joined_formats(const std::string& gate_up, const std::string& down);

/// Common groups of K for a stack whose matrices may group K differently. Within a common group, each matrix has one
/// group.
struct CommonGroups {
  std::vector<std::int32_t> index;                 ///< the common group of each k
  std::vector<std::vector<std::int32_t>> sources;  ///< [matrix][common group]: the matrix's own group

  explicit CommonGroups(const MatrixStack& stack);
  std::int64_t count() const noexcept { return static_cast<std::int64_t>(sources.front().size()); }
};

/// Errors: invalid_argument  the matrix is not [rows, columns], its type is unknown, or its scales and zero points do
/// not cover it; `what` names the matrix
void expect_weights(const WeightMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
