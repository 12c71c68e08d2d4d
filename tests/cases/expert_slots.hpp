#pragma once
#include <moecl/expert_slots.hpp>

#include <vector>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// Tables of some experts and slots, nobody in any, and weights that take turns.
struct ExpertSlotsMemory {
  ExpertSlotsMemory(StreamView stream, std::int64_t experts, std::int64_t slots, std::int64_t expert_bytes);

  DeviceTensor row_ends, slots, holders, priorities, fetches, counters, awaited, from, to;

  expert_slots::Claim claim() const;
  expert_slots::Fetch fetch(std::int64_t most) const { return {from, to, fetches, most}; }
};

/// Row ends of experts that have a row each, or none.
std::vector<double> ends_of(const std::vector<bool>& used);

}  // namespace moecl::test
