#pragma once
// How the matrices of a layer's weights are stored on a device.
#include <moecl/moe_weights.hpp>
#include <moecl/packed_weights.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moecl {

/// Matrices [*, K] that are packed side by side as one [N, K]: gate and up, or one alone.
using MatrixStack = std::vector<WeightMatrix>;
/// What a network's first product multiplies with, and what is added to it: of gate and up, or of up alone.
MatrixStack first_matrices(const ExpertMatrices& network);
std::vector<HostMatrix> first_biases(const ExpertMatrices& network);

/// The one format of all experts' stacks.
struct WeightFormat {
  CodeType type = CodeType::f32;
  DType scale = DType::f32;   ///< of scales for groups of K, if there are such
  std::int64_t groups = 0;    ///< of K that have scales of their own; 0: scales, if any, are for whole columns
  std::int64_t group = 0;     ///< columns of K in a group; 0: `group_index` says which belong together
  bool zero = false;          ///< zero points beside the scales
  bool column_scale = false;  ///< scales that multiply the sums
  bool panel_scales = false;  ///< the columns of a panel share the scales of groups
  PanelLayout layout = PanelLayout::n_major;

  /// Plain matrices are stored as `plain`. Errors: invalid_argument  matrices differ in their format
  static WeightFormat of(const std::vector<MatrixStack>& stacks, DType plain);
  /// Of plain matrices that are quantized so while they are packed.
  static WeightFormat of(const OperandQuant& quantized, const MatrixStack& plain);
  /// Whether matrices of the other format can be packed where some of this one are: a missing column scale is 1,
  /// scales of a panel may be shared without need, and the layout is this one's.
  bool holds(WeightFormat other) const;
  bool operator==(const WeightFormat& other) const = default;
  /// Device memory of one expert [n, k], all that is resident of it.
  std::uint64_t size_bytes(std::int64_t n, std::int64_t k) const;
  /// "i4, scales f16 of 128 columns, zero points"
  std::string describe() const;
};

/// Of gate and up, and of down, in words: once if they are the same.
std::string joined_formats(const std::string& gate_up, const std::string& down);

/// Matrices of a stack may count their groups of K differently: the groups in which all of them stay the same.
struct CommonGroups {
  std::vector<std::int32_t> index;                 ///< of each k
  std::vector<std::vector<std::int32_t>> sources;  ///< for each matrix, its group that is each common group

  explicit CommonGroups(const MatrixStack& stack);
  std::int64_t count() const noexcept { return static_cast<std::int64_t>(sources.front().size()); }
};

/// Errors: invalid_argument  not [rows, columns], of a type that is not known, or scales and zero points that do not
/// cover it; `what` names the matrix
void expect_weights(const WeightMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
