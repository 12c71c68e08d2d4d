#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/expert_slots.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/routing/expert_slots_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource expert_slots;
}

namespace moecl::expert_slots {
namespace {

constexpr std::size_t items = 64;  // of the work-group that claims
constexpr std::int64_t most_experts = 4096, most_slots = 2048;

static_assert(static_cast<int>(Policy::lru) == SLOTS_LRU &&
              static_cast<int>(Policy::least_stale) == SLOTS_LEAST_STALE &&
              static_cast<int>(Policy::fixed) == SLOTS_STATIC);

std::int64_t next_power_of_two(std::int64_t count) {
  std::int64_t power = 1;
  while (power < count) power *= 2;
  return power;
}

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
          .first_expert = args.first_expert,
          .experts = args.experts,
          .slot_count = int_of(args.holders.shape[0]),
          .policy = static_cast<std::int32_t>(args.policy),
          .fading = args.fading,
          .new_pass = args.new_pass};
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
  if (!(args.fading >= 0 && args.fading <= 1)) return fmt::format("fading: {} is not in [0, 1]", args.fading);
  if (args.counters.rank != 1 || args.counters.dtype != DType::i64 || args.counters.shape[0] != 3)
    return fmt::format("counters: expected i64[3], got {}", args.counters.describe());
  return first_of({reject_indices("row_ends", args.row_ends, experts), reject_indices("slots", args.slots, experts),
                   reject_indices("holders", args.holders, slots),
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

void enqueue(StreamView stream, const Claim& args, Submit submit) {
  const std::string reason = reject(args);
  require(reason.empty(), "expert_slots: {}", reason);
  const std::string options =
      fmt::format("-DITEMS={} -DSLOTS={} -DEXPERTS={}", items, next_power_of_two(args.holders.shape[0]),
                  next_power_of_two(args.slots.shape[0]));
  launch(
      stream, {&source::expert_slots, options, "expert_slots_claim"}, {{items, 1, 1}, {items, 1, 1}}, submit,
      {"expert_slots", "claim", stream.trace != nullptr ? args.slots.describe() : std::string(), cost(args).bytes, 0},
      args.row_ends, args.slots, args.holders, args.priorities, args.fetches, args.counters, kernel_args(args));
}

void enqueue(StreamView stream, const Fetch& args, Submit submit) {
  const std::string reason = reject(args);
  require(reason.empty(), "expert_slots: {}", reason);
  const std::int64_t bytes = args.from.shape[1];
  const bool in_runs = stream.device->caps.type == DeviceType::cpu;
  const std::uint64_t alignment =
      static_cast<std::uint64_t>(bytes) | args.from.buffer.offset_bytes | args.to.buffer.offset_bytes;
  std::int64_t unit = in_runs ? 64 : 16;  // bytes of uint16, uint4
  while (alignment % static_cast<std::uint64_t>(unit) != 0) unit /= 4;
  const auto first = [&](const TensorView& view) {
    return static_cast<long>(view.buffer.offset_bytes) / static_cast<long>(unit);
  };
  // As many as hide the bus, whatever a fetch has.
  const std::size_t group = in_runs ? 1 : items, groups = 4 * stream.device->caps.compute_units,
                    all = static_cast<std::size_t>(bytes / unit), wide = std::min((all + group - 1) / group, groups);
  const std::string options =
      fmt::format("-DUNIT=uint{} -DRUNS={}", unit == 4 ? "" : std::to_string(unit / 4), static_cast<int>(in_runs));
  launch(stream, {&source::expert_slots, options, "expert_slots_fetch"},
         {{wide * group, static_cast<std::size_t>(args.most), 1}, {group, 1, 1}}, submit,
         {"expert_slots", "fetch", stream.trace != nullptr ? args.to.describe() : std::string(), cost(args).bytes, 0},
         args.from, args.to, args.fetches,
         expert_slots_fetch_args{.from_first = first(args.from),
                                 .to_first = first(args.to),
                                 .fetches_first = first_element(args.fetches),
                                 .units = bytes / unit});
}

OperatorCost cost(const Claim& args) {
  return {args.row_ends.size_bytes() + 2 * (args.slots.size_bytes() + args.holders.size_bytes()) +
              args.fetches.size_bytes(),
          0};
}
OperatorCost cost(const Fetch& args) { return {2 * static_cast<std::uint64_t>(args.most * args.from.shape[1]), 0}; }

}  // namespace moecl::expert_slots
