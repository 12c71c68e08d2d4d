#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/expert_slots.hpp>

#include <algorithm>
#include <bit>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/routing/expert_slots_args.h"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource expert_slots;
}

namespace moecl::expert_slots {
namespace {

constexpr std::size_t items = 64;  // work-items of the work-group that claims
constexpr std::int64_t most_experts = 4096, most_slots = 2048;

static_assert(static_cast<int>(Policy::lru) == SLOTS_LRU &&
              static_cast<int>(Policy::least_stale) == SLOTS_LEAST_STALE &&
              static_cast<int>(Policy::fixed) == SLOTS_STATIC);

/// Entries of local memory, rounded up to a power of two: few programs serve all sizes.
std::uint64_t room_for(std::int64_t count) { return std::bit_ceil(static_cast<std::uint64_t>(count)); }

std::string reject_bytes(const char* what, const TensorView& view, std::int64_t bytes) {
  if (view.rank == 2 && view.dtype == DType::u8 && view.shape[0] >= 1 && view.shape[1] == bytes && view.contiguous() &&
      view.buffer.offset_bytes % 4 == 0)
    return {};
  return fmt::format("{}: expected contiguous u8[*, {}] from a multiple of 4 bytes, got {}", what, bytes,
                     view.describe());
}

expert_slots_claim_args kernel_args(const Claim& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .slots_first = first_element(args.slots),
          .holders_first = first_element(args.holders),
          .priorities_first = first_element(args.priorities),
          .fetches_first = first_element(args.fetches),
          .counters_first = first_element(args.counters),
          .awaited_first = first_element(args.awaited),
          .first_expert = args.first_expert,
          .experts = args.experts,
          .slot_count = args.slot_count > 0 ? args.slot_count : int_of(args.holders.shape[0]) - args.first_slot,
          .policy = static_cast<std::int32_t>(args.policy),
          .fading = args.fading,
          .new_pass = args.new_pass && !args.foreseen,
          .first_slot = args.first_slot,
          .foreseen = args.foreseen};
}

}  // namespace

std::string reject(const Claim& args) {
  const std::int64_t experts = args.slots.shape[0], slots = args.holders.shape[0];
  if (args.slots.rank != 1 || experts < 1 || experts > most_experts)
    return fmt::format("slots: expected i32[E] of at most {} experts, got {}", most_experts, args.slots.describe());
  if (args.holders.rank != 1 || slots < 1 || slots > most_slots)
    return fmt::format("holders: expected i32[S] of at most {} slots, got {}", most_slots, args.holders.describe());
  if (args.first_expert < 0 || args.experts < 1 || std::int64_t{args.first_expert} + args.experts > experts)
    return fmt::format("experts: {} from {} leave the {} of slots", args.experts, args.first_expert, experts);
  if (args.first_slot < 0 || args.slot_count < 0 || args.first_slot >= slots ||
      std::int64_t{args.first_slot} + args.slot_count > slots)
    return fmt::format("slots: {} from {} leave the {} of holders", args.slot_count, args.first_slot, slots);
  if (!(args.fading >= 0 && args.fading <= 1)) return fmt::format("fading: {} is not in [0, 1]", args.fading);
  if (args.counters.rank != 1 || args.counters.dtype != DType::i64 || args.counters.shape[0] != 5)
    return fmt::format("counters: expected i64[5], got {}", args.counters.describe());
  return first_of({reject_indices("row_ends", args.row_ends, experts), reject_indices("slots", args.slots, experts),
                   reject_indices("holders", args.holders, slots), reject_indices("awaited", args.awaited, slots),
                   reject_indices("priorities", args.priorities, experts),
                   reject_indices("fetches", args.fetches, 1 + 2 * slots)});
}

std::string reject(const Fetch& args) {
  const std::int64_t slots = args.to.shape[0];
  if (args.most < 1 || args.most > slots) return fmt::format("most: {} fetches into {} slots", args.most, slots);
  return first_of(
      {reject_bytes("from", args.from, args.from.shape[1]), reject_bytes("to", args.to, args.from.shape[1]),
       reject_indices("fetches", args.fetches, 1 + 2 * slots),
       args.from.shape[1] % 4 == 0 ? std::string() : fmt::format("from: {} bytes of an expert", args.from.shape[1])});
}

namespace {

/// Bytes that a work-item copies at a time: at most a uint16 on a CPU, at most a uint4 elsewhere.
std::int64_t unit_of(const Fetch& args, const DeviceCaps& caps) {
  const std::uint64_t alignment =
      static_cast<std::uint64_t>(args.from.shape[1]) | args.from.buffer.offset_bytes | args.to.buffer.offset_bytes;
  std::int64_t unit = caps.type == DeviceType::cpu ? 64 : 16;
  while (alignment % static_cast<std::uint64_t>(unit) != 0) unit /= 4;
  return unit;
}

LaunchPlan plan(const Claim& args) {
  const std::string reason = reject(args);
  require(reason.empty(), "expert_slots: {}", reason);
  return {"claim",
          fmt::format("-DITEMS={} -DSLOTS={} -DEXPERTS={}", items, room_for(args.holders.shape[0]),
                      room_for(args.slots.shape[0])),
          {items, 1, 1},
          {items, 1, 1},
          args.slots.describe(),
          cost(args)};
}

LaunchPlan plan(const Fetch& args, const DeviceCaps& caps) {
  const std::string reason = reject(args);
  require(reason.empty(), "expert_slots: {}", reason);
  const bool in_runs = caps.type == DeviceType::cpu;
  const std::int64_t unit = unit_of(args, caps);
  // At most as many work-groups as hide the latency of the bus, whatever the size of a fetch.
  const std::size_t group = in_runs ? 1 : items, groups = 4 * caps.compute_units,
                    all = static_cast<std::size_t>(args.from.shape[1] / unit),
                    wide = std::min(quotient_up(all, group), groups);
  return {"fetch",
          fmt::format("-DUNIT=uint{} -DRUNS={}", unit == 4 ? "" : std::to_string(unit / 4), static_cast<int>(in_runs)),
          {wide * group, static_cast<std::size_t>(args.most), 1},
          {group, 1, 1},
          args.to.describe(),
          cost(args)};
}

}  // namespace

void enqueue(StreamView stream, const Claim& args, Submit submit) {
  const auto made = [&] { return plan(args); };
  const auto kept = kept_plan(stream, source::expert_slots, made, args.row_ends, args.slots, args.holders,
                              args.priorities, args.fetches, args.counters, args.awaited, args.first_expert,
                              args.experts, args.fading, args.first_slot, args.slot_count);
  launch_planned(stream, source::expert_slots, "expert_slots_claim", *kept, submit, args.row_ends, args.slots,
                 args.holders, args.priorities, args.fetches, args.counters, args.awaited, kernel_args(args));
}

void enqueue(StreamView stream, const Fetch& args, Submit submit) {
  const DeviceCaps& caps = stream.device->caps;
  const auto made = [&] { return plan(args, caps); };
  const auto kept = kept_plan(stream, source::expert_slots, made, args.from, args.to, args.fetches, args.most);
  const std::int64_t unit = unit_of(args, caps);
  const auto first = [&](const TensorView& view) { return static_cast<std::int64_t>(view.buffer.offset_bytes) / unit; };
  launch_planned(stream, source::expert_slots, "expert_slots_fetch", *kept, submit, args.from, args.to, args.fetches,
                 expert_slots_fetch_args{.from_first = first(args.from),
                                         .to_first = first(args.to),
                                         .fetches_first = first_element(args.fetches),
                                         .units = args.from.shape[1] / unit});
}

OperatorCost cost(const Claim& args) {
  return {args.row_ends.size_bytes() + 2 * (args.slots.size_bytes() + args.holders.size_bytes()) +
              args.fetches.size_bytes(),
          0};
}
OperatorCost cost(const Fetch& args) { return {2 * static_cast<std::uint64_t>(args.most * args.from.shape[1]), 0}; }

}  // namespace moecl::expert_slots
