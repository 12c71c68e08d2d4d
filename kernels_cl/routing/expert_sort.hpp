#pragma once
// Launch shape and arguments of the kernels that sort slots (sort_slots.clh), also of those that do more than sort.
#include <moecl/expert_sort.hpp>

#include <algorithm>
#include <bit>

#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/routing/expert_sort_args.h"
#include "runtime/kernel.hpp"

namespace moecl::expert_sort {

inline std::int32_t local_experts(const Args& args) { return args.end_expert - args.first_expert; }

/// The lanes of a work-group, divided into teams. Each team has its own counters.
struct Lanes {
  std::int32_t count, teams = 1;

  std::string options() const { return fmt::format("-DLANES={} -DTEAM={}", count, count / teams); }
  std::size_t counter_bytes(std::int64_t experts) const {
    return static_cast<std::size_t>(experts * (teams == 1 ? 1 : 1 + teams)) * sizeof(std::int32_t);
  }
  std::size_t local_bytes(std::int64_t experts) const {
    return counter_bytes(experts) + static_cast<std::size_t>(count + teams + 1) * sizeof(std::int32_t);
  }
};

/// On a GPU teams of 32 lanes with four tiles of slots each, as far as their counters fit in local memory.
inline Lanes lanes_for(std::int64_t slots, std::int32_t experts, const Config& config, const DeviceCaps& caps) {
  constexpr std::int32_t team = 32, least = 64;
  if (caps.type == DeviceType::cpu && config.lanes == 0) return {1};
  const std::int64_t most =
      std::min<std::int64_t>({1024, static_cast<std::int64_t>(caps.max_work_group_size), slots / 4});
  std::int32_t lanes = config.lanes;
  if (lanes == 0) lanes = std::max(static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint64_t>(most))), least);
  const auto fits = [&] { return Lanes{lanes, lanes / team}.local_bytes(experts) <= caps.local_mem_bytes; };
  while (config.lanes == 0 && lanes > least && !fits()) lanes /= 2;
  return lanes % team == 0 && fits() ? Lanes{lanes, lanes / team} : Lanes{lanes};
}

inline expert_sort_args kernel_args(const Args& args) {
  const bool keys = args.key_bits > 0;
  const std::int32_t experts = local_experts(args);
  return {
      .ids_first = first_element(args.ids),
      .order_first = first_element(args.order),
      .row_ends_first = first_element(args.row_ends),
      .counts_first = first_element(args.counts),
      .sorted_slots_first = first_element(args.sorted_slots),
      .slot_rows_first = first_element(args.slot_rows),
      .fault_first = first_element(args.fault),
      .table_first = 0,
      .slots = static_cast<std::int32_t>(args.ids.elements()),
      .first_expert = args.first_expert,
      .experts = experts,
      .lowest_id = keys ? 0 : -1,
      .highest_id = keys ? static_cast<std::int32_t>((std::int64_t{1} << args.key_bits) - 1) : args.total_experts - 1,
      .shift = args.key_shift,
      .mask = keys ? experts - 1 : -1,
      .capacity = static_cast<std::int32_t>(args.rows_per_expert),
      .may_drop = args.may_drop,
      .chunk_slots = 0};
}

}  // namespace moecl::expert_sort
