#include <moecl/expert_sort.hpp>

#include <algorithm>
#include <limits>

#include "kernels_cl/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource expert_sort;
}

namespace moecl::expert_sort {
namespace {

/// How the slots are cut: one chunk is one kernel without scratch.
struct Chunks {
  std::int64_t count, slots_each;
};

Chunks chunks(std::int64_t slots, const DeviceCaps& caps) {
  // A chunk costs a table of E counters; below these sizes that and two more launches outweigh what parallel chunks
  // save.
  const bool cpu = caps.type == DeviceType::cpu;
  const std::int64_t smallest = cpu ? 8192 : 256;
  const std::int64_t most = std::max<std::int64_t>(1, (cpu ? 2 : 8) * std::int64_t{caps.compute_units});
  const std::int64_t wanted = std::clamp<std::int64_t>(slots / smallest, 1, most);
  const std::int64_t slots_each = std::max<std::int64_t>(1, (slots + wanted - 1) / wanted);
  return {std::max<std::int64_t>(1, (slots + slots_each - 1) / slots_each), slots_each};
}

/// Entries of the kernels' table: counts and a flag of each chunk, two numbers of each expert.
std::int64_t table_entries(std::int64_t count, std::int32_t experts) { return count * (experts + 1) + 2 * experts; }

std::int32_t local_experts(const Args& args) { return args.end_expert - args.first_expert; }

}  // namespace

std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t experts, const DeviceCaps& caps) {
  const Chunks cut = chunks(slots, caps);
  if (cut.count == 1) return 0;
  return static_cast<std::uint64_t>(table_entries(cut.count, experts)) * sizeof(std::int32_t);
}

std::string reject(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (args.ids.rank != 2 || args.ids.dtype != DType::i32 || !args.ids.contiguous())
    return fmt::format("ids: expected contiguous i32[T, K], got {}", args.ids.describe());
  if (args.first_expert < 0 || args.end_expert <= args.first_expert || args.total_experts < args.end_expert)
    return fmt::format("experts: [{}, {}) is no range of the {} experts", args.first_expert, args.end_expert,
                       args.total_experts);
  const std::int64_t slots = args.ids.elements(), experts = local_experts(args);
  // Rows and slots are counted in int32; over-full experts count on past the last row.
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max() - 128;
  if (slots > largest) return fmt::format("ids: {} slots, at most {} are possible", slots, largest);
  if (args.rows_per_expert < 0 || args.rows_per_expert > (largest - slots) / experts)
    return fmt::format("rows_per_expert: {} for {} experts and {} slots; their sum must be in [0, {}]",
                       args.rows_per_expert, experts, slots, largest);
  const auto is_ints = [](const TensorView& view, std::int64_t count) {
    return view.rank == 1 && view.dtype == DType::i32 && view.shape[0] == count;
  };
  if (!is_ints(args.row_ends, experts))
    return fmt::format("row_ends: expected i32[{}], got {}", experts, args.row_ends.describe());
  const std::int64_t rows = args.rows_per_expert == 0 ? slots : experts * args.rows_per_expert;
  if (!is_ints(args.sorted_slots, rows))
    return fmt::format("sorted_slots: expected i32[{}], got {}", rows, args.sorted_slots.describe());
  if (!is_ints(args.slot_rows, slots))
    return fmt::format("slot_rows: expected i32[{}], got {}", slots, args.slot_rows.describe());
  if (args.fault.present() && !is_ints(args.fault, 4))
    return fmt::format("fault: expected i32[4], got {}", args.fault.describe());
  if (const std::uint64_t needed = scratch_bytes(slots, local_experts(args), caps); args.scratch.size_bytes < needed)
    return fmt::format("scratch: {} bytes are needed, got {}", needed, args.scratch.size_bytes);
  if (std::string reason = reject_lanes(config.lanes, caps); !reason.empty()) return reason;
  const std::uint64_t local_bytes =
      (static_cast<std::uint64_t>(experts) + 2 * row_lanes(config.lanes, caps)) * sizeof(std::int32_t);
  if (local_bytes > caps.local_mem_bytes)
    return fmt::format("experts: {} need {} bytes of local memory, the device has {}", experts, local_bytes,
                       caps.local_mem_bytes);
  return {};
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const DeviceCaps& caps = stream.device->caps;
  const std::string reason = reject(args, config, caps);
  require(reason.empty(), "expert_sort: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, caps);
  const auto local = static_cast<std::size_t>(lanes);
  const auto slots = static_cast<std::int32_t>(args.ids.elements());
  const std::int32_t experts = local_experts(args);
  const auto capacity = static_cast<std::int32_t>(args.rows_per_expert);
  const LocalMemory counters{static_cast<std::size_t>(experts) * sizeof(std::int32_t)};
  const OperatorCost work = cost(args);
  const auto key = [&](const char* kernel) {
    return KernelKey{&source::expert_sort, fmt::format("-DLANES={}", lanes), kernel};
  };
  const auto info = [&](const char* variant, std::uint64_t bytes) {
    return WorkInfo{"expert_sort", variant, fmt::format("{} E={}", args.ids.describe(), experts), bytes, 0};
  };

  const Chunks cut = chunks(slots, caps);
  if (cut.count == 1)
    return launch(stream, key("expert_sort_one_chunk"), {{local, 1, 1}, {local, 1, 1}}, submit,
                  info("one_chunk", work.bytes), args.ids, args.row_ends, args.sorted_slots, args.slot_rows, args.fault,
                  slots, args.first_expert, experts, args.total_experts, capacity, counters);

  const NdRange each_chunk{{static_cast<std::size_t>(cut.count) * local, 1, 1}, {local, 1, 1}};
  const NdRange each_expert{{static_cast<std::size_t>(experts) * local, 1, 1}, {local, 1, 1}};
  const auto slots_each = static_cast<std::int32_t>(cut.slots_each);
  const TensorView table(args.scratch, DType::i32, {table_entries(cut.count, experts)});
  launch(stream, key("expert_sort_histogram"), each_chunk, {submit.wait, nullptr},
         info("histogram", args.ids.size_bytes() + table.size_bytes()), args.ids, table, slots, args.first_expert,
         experts, args.total_experts, capacity, slots_each, counters);
  launch(stream, key("expert_sort_scan"), each_expert, {}, info("scan", 2 * table.size_bytes()), table,
         static_cast<std::int32_t>(cut.count), capacity);
  launch(stream, key("expert_sort_scatter"), each_chunk, {{}, submit.done},
         info("scatter", work.bytes + table.size_bytes()), args.ids, table, args.row_ends, args.sorted_slots,
         args.slot_rows, args.fault, slots, args.first_expert, experts, args.total_experts, capacity, slots_each,
         counters);
}

OperatorCost cost(const Args& args) {
  const auto slots = static_cast<std::uint64_t>(args.ids.elements());
  return {3 * slots * sizeof(std::int32_t) + args.row_ends.size_bytes(), 0};
}

}  // namespace moecl::expert_sort
