#include "kernels_cl/routing/expert_sort.hpp"

#include <moecl/expert_sort.hpp>

#include <algorithm>
#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource expert_sort;
}

namespace moecl::expert_sort {
namespace {

/// How the slots are divided into chunks. One chunk takes one kernel and no scratch.
struct Chunks {
  std::int64_t count, slots_each;
};

Chunks chunks(std::int64_t slots, std::int32_t experts, const DeviceCaps& caps) {
  // Each chunk adds E counters to the table, which every chunk reads. Several chunks take one more launch. On a GPU two
  // chunks save less time than that costs.
  const bool is_cpu = caps.type == DeviceType::cpu;
  const std::int64_t smallest = std::max<std::int64_t>(is_cpu ? 8192 : 2048, experts), fewest = is_cpu ? 2 : 3;
  const std::int64_t most = std::clamp<std::int64_t>(2 * std::int64_t{caps.compute_units}, 1, 32);
  const std::int64_t whole = slots / smallest, wanted = whole < fewest ? 1 : std::min(whole, most);
  const std::int64_t slots_each = std::max<std::int64_t>(1, quotient_up(slots, wanted));
  return {std::max<std::int64_t>(1, quotient_up(slots, slots_each)), slots_each};
}

/// Entries of the kernels' table: E counts and a flag per chunk.
std::int64_t table_entries(std::int64_t count, std::int32_t experts) { return count * (experts + 1); }

std::string reject_keys(const Args& args) {
  if (args.key_bits < 0 || args.key_bits > 31) return fmt::format("key_bits: {} is outside [0, 31]", args.key_bits);
  if (args.key_shift < 0 || args.key_shift > 30) return fmt::format("key_shift: {} is outside [0, 30]", args.key_shift);
  const bool digits =
      args.first_expert == 0 && args.total_experts == args.end_expert && (args.end_expert & (args.end_expert - 1)) == 0;
  if (args.key_bits > 0 && !digits)
    return fmt::format("experts: [{}, {}) of {} are no digit of a key; a power of two from 0 on is needed",
                       args.first_expert, args.end_expert, args.total_experts);
  if (args.key_bits == 0 && args.key_shift != 0) return fmt::format("key_shift: {} needs key_bits", args.key_shift);
  return {};
}

}  // namespace

std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t experts, const DeviceCaps& caps) {
  const Chunks cut = chunks(slots, experts, caps);
  if (cut.count == 1) return 0;
  return static_cast<std::uint64_t>(table_entries(cut.count, experts)) * sizeof(std::int32_t);
}

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.ids.rank != 2 || args.ids.dtype != DType::i32 || !args.ids.contiguous())
    return fmt::format("ids: expected contiguous i32[T, K], got {}", args.ids.describe());
  if (args.first_expert < 0 || args.end_expert <= args.first_expert || args.total_experts < args.end_expert)
    return fmt::format("experts: [{}, {}) is no range of the {} experts", args.first_expert, args.end_expert,
                       args.total_experts);
  const std::int64_t slots = args.ids.elements(), experts = local_experts(args);
  // Rows and slots are counted in int32. The row counter of an over-full expert runs on past its last row.
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max() - 128;
  if (slots > largest) return fmt::format("ids: {} slots, at most {} are possible", slots, largest);
  if (args.rows_per_expert < 0 || args.rows_per_expert > (largest - slots) / experts)
    return fmt::format("rows_per_expert: {} for {} experts and {} slots; their sum must be in [0, {}]",
                       args.rows_per_expert, experts, slots, largest);
  if (std::string reason = reject_keys(args); !reason.empty()) return reason;
  const std::int64_t rows = args.rows_per_expert == 0 ? slots : experts * args.rows_per_expert;
  for (const std::string& reason :
       {reject_optional_indices("row_ends", args.row_ends, experts),
        reject_optional_indices("counts", args.counts, experts),
        reject_indices("sorted_slots", args.sorted_slots, rows),
        reject_optional_indices("slot_rows", args.slot_rows, slots),
        reject_optional_indices("order", args.order, slots), reject_optional_indices("fault", args.fault, 4)})
    if (!reason.empty()) return reason;
  if (const std::uint64_t needed = scratch_bytes(slots, local_experts(args), device.caps);
      args.scratch.size_bytes < needed)
    return fmt::format("scratch: {} bytes are needed, got {}", needed, args.scratch.size_bytes);
  if (std::string reason = reject_lanes(config.lanes, device.caps); !reason.empty()) return reason;
  const std::uint64_t needed = lanes_for(slots, local_experts(args), config, device.caps).local_bytes(experts);
  if (needed > device.caps.local_mem_bytes)
    return fmt::format("experts: {} need {} bytes of local memory, the device has {}", experts, needed,
                       device.caps.local_mem_bytes);
  return {};
}

Plan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "expert_sort: {}", reason);
  const std::int32_t experts = local_experts(args);
  const Chunks cut = chunks(args.ids.elements(), experts, device.caps);
  const Lanes lanes = lanes_for(cut.slots_each, experts, config, device.caps);
  const auto local = static_cast<std::size_t>(lanes.count);
  const std::uint64_t table_bytes =
      static_cast<std::uint64_t>(table_entries(cut.count, experts)) * sizeof(std::int32_t);
  Plan plan;
  plan.sort = {"one_chunk",
               lanes.options() + shuffle_option(lanes.count, device.caps),
               {static_cast<std::size_t>(cut.count) * local, 1, 1},
               {local, 1, 1},
               fmt::format("{} E={}", args.ids.describe(), experts),
               cost(args)};
  if (cut.count > 1) {
    plan.histogram = plan.sort;
    plan.histogram.variant = "histogram";
    plan.histogram.cost = {args.ids.size_bytes() + table_bytes, 0};
    plan.sort.variant = "scatter";
    plan.sort.cost.bytes += table_bytes;
  }
  plan.chunks = cut.count;
  plan.chunk_slots = cut.slots_each;
  plan.counter_bytes = lanes.counter_bytes(experts);
  return plan;
}

void enqueue(StreamView stream, const Plan& plan, const Args& args, Submit submit) {
  expert_sort_args given = kernel_args(args);
  const LocalMemory counters{plan.counter_bytes};
  if (plan.chunks == 1)
    return launch_planned(stream, source::expert_sort, "expert_sort_one_chunk", plan.sort, submit, args.ids, args.order,
                          args.row_ends, args.counts, args.sorted_slots, args.slot_rows, args.fault, counters, given);
  const TensorView table(args.scratch, DType::i32, {table_entries(plan.chunks, given.experts)});
  given.table_first = first_element(table);
  given.chunk_slots = static_cast<std::int32_t>(plan.chunk_slots);
  launch_planned(stream, source::expert_sort, "expert_sort_histogram", plan.histogram, {submit.wait, nullptr}, args.ids,
                 args.order, table, counters, given);
  launch_planned(stream, source::expert_sort, "expert_sort_scatter", plan.sort, {{}, submit.done}, args.ids, args.order,
                 args.row_ends, args.counts, args.sorted_slots, args.slot_rows, args.fault, table, counters, given);
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const auto made = [&] { return plan(args, config, *stream.device); };
  enqueue(
      stream,
      *kept_plan(stream, source::expert_sort, made, args.ids, args.first_expert, args.end_expert, args.total_experts,
                 args.rows_per_expert, args.row_ends, args.counts, args.sorted_slots, args.slot_rows, args.fault,
                 args.scratch.size_bytes, args.key_bits, args.key_shift, args.order, config.lanes),
      args, submit);
}

OperatorCost cost(const Args& args) {
  const auto slots = static_cast<std::uint64_t>(args.ids.elements());
  return {3 * slots * sizeof(std::int32_t) + args.row_ends.size_bytes(), 0};
}

}  // namespace moecl::expert_sort
