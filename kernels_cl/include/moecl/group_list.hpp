#pragma once
#include <moecl/device.hpp>
#include <moecl/launch_plan.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Converts the group lists of the Ascend operators to row_ends, and row_ends or counts to group lists.
///
/// Source: group_list and group_list_type of npu_grouped_matmul, expert_tokens of npu_moe_init_routing_v2
namespace moecl::group_list {

/// The format of a list. The values are the operators'.
enum class Kind : std::int32_t {
  cumsum = 0,  ///< [E]: rows up to and including each expert
  counts = 1,  ///< [E]: rows of each expert
  pairs = 2    ///< [n, 2]: (expert, count), experts ascending, unnamed ones empty; a pair (0, 0) ends the list
};

/// Reads row_ends from a list. On a fault they are clamped: all stay in [0, rows] and none descends.
struct Read {
  TensorView list;  ///< i32 or i64, contiguous, shaped as `kind` says
  Kind kind = Kind::cumsum;
  std::int64_t rows = 0;  ///< rows that exist; a larger sum sets the fault word. Range: [0, 2^31 - 1)
  bool all_rows = false;  ///< true: a smaller sum sets the fault word too
  TensorView row_ends;    ///< out. Shape: [E] i32
  TensorView fault;       ///< optional in/out. Shape: [4] i32, see fault.hpp: the first faulty entry
  /// room of a group: a larger group sets the fault word and counts as this many rows. 0: a group may have all rows
  std::int64_t rows_per_group = 0;
};

/// Writes a list from row_ends or counts.
struct Write {
  TensorView row_ends;  ///< either this or `counts`. Shape: [E] i32
  TensorView counts;    ///< Shape: [E] i32
  Kind kind = Kind::cumsum;
  std::int32_t first_expert = 0;  ///< pairs give expert e of this list the id first_expert + e
  /// out. i32 or i64, contiguous, shaped as `kind` says; n >= E. For pairs, only experts with rows are
  /// written, and one (0, 0) after them if there is room.
  TensorView list;
};

struct Config {
  std::int32_t lanes = 0;  ///< work-items of the one work-group; 0 picks 1 on a CPU and 64 elsewhere
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Read& args, const Config& config, const Device& device);
std::string reject(const Write& args, const Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Read& args, const Config& config, const Device& device);
/// For writing a list.
/// Errors: invalid_argument  `reject` says why
LaunchPlan plan(const Write& args, const Config& config, const Device& device);
/// Launches `args` by a plan that was made for arguments of the same form (see LaunchPlan).
void enqueue(StreamView stream, const LaunchPlan& plan, const Read& args, Submit submit = {});
void enqueue(StreamView stream, const LaunchPlan& plan, const Write& args, Submit submit = {});
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel
void enqueue(StreamView stream, const Read& args, const Config& config = {}, Submit submit = {});
void enqueue(StreamView stream, const Write& args, const Config& config = {}, Submit submit = {});
OperatorCost cost(const Read& args);
OperatorCost cost(const Write& args);

}  // namespace moecl::group_list
