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

/// What operators leave open and tables of measurements decide for a device. Data: kernels_cl/tuning/operators.json,
/// and the user's table of that name, which `moecl tune` writes. An entry has
///
///     "choices": {"combine/lanes": 32, "grouped_gemm/bf16/bf16/t0_gemv": 8, ..}
///
/// that is, work-items that share a row of an operator; and the rows of an expert up to which a variant of the grouped
/// product is taken, for `a` and weights of such types: a number, "any", or 0: never. What no entry names stays as the
/// operators have it.
namespace moecl::tuning {

/// Both tables, for ContextOptions::tuning. The user's goes before the shipped one, and in each the entry that is
/// closest to the device. A table with a name or a value that cannot be is a problem, and ignored.
Tuning read(const DeviceCaps& caps);
/// The same of any tables, in that order.
Tuning read_from(const std::vector<Table>& tables, const DeviceCaps& caps);

/// Where operators look: what Device::tuning says; null where it says nothing.
const TunedChoice* find_lanes(const Tuning& tuning, std::string_view op);
/// The most rows of an expert that the variant takes of such products there; null where nothing says it.
const TunedChoice* find_most_rows(const Tuning& tuning, DType a, CodeType weights, std::string_view variant);

/// Of a variant that takes any number of rows of an expert.
inline constexpr std::int64_t any_rows = std::numeric_limits<std::int64_t>::max();
/// Whether the variant of a product may differ by the rows of an expert there. On CPUs with register tiles it may not:
/// a row's result is the same, whatever else is in the batch.
bool rows_choose(const DeviceCaps& caps);
/// A variant of the grouped product where no table says otherwise, from kernels_cl/tuning/gemm_variants.json.
struct VariantDefaults {
  std::string name;
  std::int64_t most_rows;   ///< rows of an expert up to which it is taken
  double tile_us;           ///< of a tile that a compute unit has alone, K = 7168; 0: not measured
  double slices_us;         ///< that slices of K take beside their part of it, of variants that cut it
  std::int64_t least_rows;  ///< from so many on it goes before those for fewer rows; 0: those go first
};
/// Those of every variant.
const std::vector<VariantDefaults>& variant_defaults();

/// The names of these choices.
std::string lanes_name(std::string_view op);
/// That of find_most_rows.
std::string most_rows_name(DType a, CodeType weights, std::string_view variant);

/// An operator whose rows are shared by Config::lanes work-items.
struct RowOperator {
  const char* name;
  const char* lanes_on_gpu;  ///< by default, for people; on a CPU 1
  bool shares_on_cpu;        ///< else its lanes are 1 on every CPU
};
/// All of them.
const std::vector<RowOperator>& row_operators();
/// Types of `a` and of the weights in the products that tables decide about: those that layers multiply most, without
/// scales for groups of K.
const std::vector<std::pair<DType, CodeType>>& operands();

/// A choice for people: what, its value, and where that comes from.
struct Line {
  std::string name, value, origin;
};
/// The lanes of row-wise operators on such a device. Of products: grouped_gemm::describe_choices.
std::vector<Line> describe(const Device& device);
/// One of them. @param tuned  null: the default
Line line_of(const std::string& name, const std::string& value, const TunedChoice* tuned);

}  // namespace moecl::tuning
