#pragma once
#include <moecl/expert_slots.hpp>

#include <vector>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// Tables of experts and slots, all slots empty, and the memory of the weights and of the slots.
struct ExpertSlotsMemory {
  ExpertSlotsMemory(StreamView stream, std::int64_t experts, std::int64_t slots, std::int64_t expert_bytes);

  DeviceTensor row_ends, slots, holders, priorities, fetches, counters, awaited, from, to;

  expert_slots::Claim claim() const;
  expert_slots::Fetch fetch(std::int64_t most) const { return {from, to, fetches, most}; }
};

/// Row ends: each used expert has one row, the others have none.
std::vector<double> ends_of(const std::vector<bool>& used);

}  // namespace moecl::test
