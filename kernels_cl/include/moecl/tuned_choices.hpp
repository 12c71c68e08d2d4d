#pragma once
#include <moecl/code_type.hpp>
#include <moecl/device.hpp>
#include <moecl/dtype.hpp>
#include <moecl/tuning_table.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Choices of operators that tables of measurements make for a device. Data: kernels_cl/tuning/operators.json, and the
/// user's table of the same name, which `moecl tune` writes. An entry has
///
///     "choices": {"combine/lanes": 32, "grouped_gemm/bf16/bf16/t0_gemv": 8, ..}
///
/// The first is the number of work-items that share a row of an operator. The second is the maximum number of rows of
/// an expert for which a variant of the grouped product is taken, with `a` and weights of these types: a number, "any",
/// or 0 (never). Operators keep their defaults for choices that no entry names.
namespace moecl::tuning {

/// Reads both tables, for ContextOptions::tuning. The user's table comes before the shipped one. Within a table,
/// entries that match the device more closely come first. A table with an unknown name or an impossible value is
/// ignored, and listed in Tuning::problems.
Tuning read(const DeviceCaps& caps);
/// The same for any tables, in this order.
Tuning read_from(const std::vector<Table>& tables, const DeviceCaps& caps);

/// The tuned lanes of an operator, null where no table gives them. Operators ask this and the next of Device::tuning.
const TunedChoice* find_lanes(const Tuning& tuning, std::string_view op);
/// The maximum number of rows of an expert for which a product of these types takes the variant; or null.
const TunedChoice* find_most_rows(const Tuning& tuning, DType a, CodeType weights, std::string_view variant);

/// The maximum of a variant that takes any number of rows of an expert.
inline constexpr std::int64_t any_rows = std::numeric_limits<std::int64_t>::max();
/// Whether the variant of a product may depend on the number of rows of an expert. On CPUs with register tiles it may
/// not: the result of a row does not depend on the rest of the batch.
bool rows_choose(const DeviceCaps& caps);
/// Defaults of a variant of the grouped product, where no table says otherwise; kernels_cl/tuning/gemm_variants.json.
struct VariantDefaults {
  std::string name;
  std::int64_t most_rows;   ///< maximum number of rows of an expert for which it is taken
  double tile_us;           ///< time of a tile that has a compute unit alone, K = 7168; 0: not measured
  double slices_us;         ///< extra time of K-slices, beside their share of the tile's; variants with K-slices only
  std::int64_t least_rows;  ///< from here on it is preferred to variants for fewer rows; 0: those are preferred
};
/// The defaults of all variants.
const std::vector<VariantDefaults>& variant_defaults();

/// Name of the choice that find_lanes finds.
std::string lanes_name(std::string_view op);
/// Name of the choice that find_most_rows finds.
std::string most_rows_name(DType a, CodeType weights, std::string_view variant);

/// An operator whose rows are shared by Config::lanes work-items.
struct RowOperator {
  const char* name;
  const char* lanes_on_gpu;  ///< default on a GPU, as text for people; on a CPU 1
  bool shares_on_cpu;        ///< false: always 1 lane on a CPU
};
/// All such operators.
const std::vector<RowOperator>& row_operators();
/// Types of `a` and of the weights in the products that tables decide about: the ones that layers use most, without
/// scales for groups of K.
const std::vector<std::pair<DType, CodeType>>& operands();

/// A choice as text for people: its name, its value, and where the value comes from.
struct Line {
  std::string name, value, origin;
};
/// The lanes of the row-wise operators on the device. For products see grouped_gemm::describe_choices.
std::vector<Line> describe(const Device& device);
/// One such line. @param tuned  null: the value is the default
Line line_of(const std::string& name, const std::string& value, const TunedChoice* tuned);

}  // namespace moecl::tuning
