#include <moecl/group_list.hpp>

#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/rows/group_list_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource group_list;
}

namespace moecl::group_list {
namespace {

std::int64_t entries(const TensorView& list) { return list.shape[0]; }

std::string reject_list(const TensorView& list, Kind kind, std::int64_t experts, bool room_for_all) {
  const bool pairs = kind == Kind::pairs;
  const bool ints = list.dtype == DType::i32 || list.dtype == DType::i64;
  const bool shaped = pairs ? list.rank == 2 && list.shape[1] == 2 && (!room_for_all || entries(list) >= experts)
                            : list.rank == 1 && entries(list) == experts;
  if (!ints || !shaped || !list.contiguous())
    return fmt::format("list: expected i32 or i64[{}{}{}], got {}", pairs && room_for_all ? ">= " : "",
                       pairs && !room_for_all ? "n" : std::to_string(experts), pairs ? ", 2" : "", list.describe());
  constexpr std::int64_t largest = 1 << 30;
  if (entries(list) > largest) return fmt::format("list: {} entries, at most {} are possible", entries(list), largest);
  return {};
}

std::int64_t experts_of(const TensorView& view) { return view.rank == 1 ? view.shape[0] : 0; }

/// The plan of the one work-group.
LaunchPlan plan_launch(const char* variant, const std::string& refused, const Config& config, const DeviceCaps& caps,
                       const TensorView& list, const OperatorCost& work) {
  require(refused.empty(), "group_list: {}", refused);
  const std::int32_t lanes = row_lanes(config.lanes, caps);
  const auto local = static_cast<std::size_t>(lanes);
  return {variant, fmt::format("-DLANES={}", lanes), {local, 1, 1}, {local, 1, 1}, list.describe(), work};
}

static_assert(GROUP_LIST_CUMSUM == static_cast<int>(Kind::cumsum));
static_assert(GROUP_LIST_COUNTS == static_cast<int>(Kind::counts));
static_assert(GROUP_LIST_PAIRS == static_cast<int>(Kind::pairs));

bool is_wide(const TensorView& list) { return list.dtype == DType::i64; }

group_list_read_args kernel_args(const Read& args) {
  return {.list_first = first_element(args.list),
          .row_ends_first = first_element(args.row_ends),
          .fault_first = first_element(args.fault),
          .wide = is_wide(args.list),
          .kind = static_cast<std::int32_t>(args.kind),
          .entries = int_of(entries(args.list)),
          .experts = int_of(args.row_ends.shape[0]),
          .rows = int_of(args.rows),
          .all_rows = args.all_rows,
          .most = int_of(args.rows_per_group > 0 ? args.rows_per_group : args.rows + 1),
          .pad = 0};
}

/// The tensor from which a list is written.
const TensorView& source_of(const Write& args) { return args.row_ends.present() ? args.row_ends : args.counts; }

group_list_write_args kernel_args(const Write& args) {
  return {.source_first = first_element(source_of(args)),
          .list_first = first_element(args.list),
          .wide = is_wide(args.list),
          .kind = static_cast<std::int32_t>(args.kind),
          .entries = int_of(entries(args.list)),
          .experts = int_of(source_of(args).shape[0]),
          .first_expert = args.first_expert,
          .cumulative = args.row_ends.present()};
}

}  // namespace

std::string reject(const Read& args, const Config& config, const Device& device) {
  const std::int64_t experts = experts_of(args.row_ends);
  if (experts < 1) return fmt::format("row_ends: expected i32[E], got {}", args.row_ends.describe());
  if (args.rows < 0 || args.rows >= std::numeric_limits<std::int32_t>::max())
    return fmt::format("rows: {} is outside [0, 2^31 - 1)", args.rows);
  if (args.rows_per_group < 0 || args.rows_per_group > args.rows)
    return fmt::format("rows_per_group: {} of {} rows", args.rows_per_group, args.rows);
  for (const std::string& reason :
       {reject_indices("row_ends", args.row_ends, experts), reject_list(args.list, args.kind, experts, false),
        reject_optional_indices("fault", args.fault, 4)})
    if (!reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

std::string reject(const Write& args, const Config& config, const Device& device) {
  if (args.row_ends.present() == args.counts.present()) return "row_ends, counts: expected one of the two";
  const bool cumulative = args.row_ends.present();
  const TensorView& from = source_of(args);
  const std::int64_t experts = experts_of(from);
  if (experts < 1)
    return fmt::format("{}: expected i32[E], got {}", cumulative ? "row_ends" : "counts", from.describe());
  for (const std::string& reason : {reject_indices(cumulative ? "row_ends" : "counts", from, experts),
                                    reject_list(args.list, args.kind, experts, true)})
    if (!reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Read& args, const Config& config, const Device& device) {
  return plan_launch("read", reject(args, config, device), config, device.caps, args.list, cost(args));
}
LaunchPlan plan(const Write& args, const Config& config, const Device& device) {
  return plan_launch("write", reject(args, config, device), config, device.caps, args.list, cost(args));
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Read& args, Submit submit) {
  launch_planned(stream, source::group_list, "group_list_read", plan, submit, args.list, args.row_ends, args.fault,
                 kernel_args(args));
}
void enqueue(StreamView stream, const LaunchPlan& plan, const Write& args, Submit submit) {
  const TensorView& source = source_of(args);
  launch_planned(stream, source::group_list, "group_list_write", plan, submit, source, args.list, kernel_args(args));
}

void enqueue(StreamView stream, const Read& args, const Config& config, Submit submit) {
  enqueue(stream, plan(args, config, *stream.device), args, submit);
}
void enqueue(StreamView stream, const Write& args, const Config& config, Submit submit) {
  enqueue(stream, plan(args, config, *stream.device), args, submit);
}

OperatorCost cost(const Read& args) { return {args.list.size_bytes() + args.row_ends.size_bytes(), 0}; }
OperatorCost cost(const Write& args) {
  return {args.list.size_bytes() + args.row_ends.size_bytes() + args.counts.size_bytes(), 0};
}

}  // namespace moecl::group_list
