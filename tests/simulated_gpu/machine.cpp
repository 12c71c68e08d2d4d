#include "tests/simulated_gpu/machine.hpp"

#include <algorithm>
#include <list>
#include <random>

namespace simulated_gpu {
namespace {

constexpr int longest_turn = 64;

}  // namespace

void run(const Launch& launch, int compute_units, unsigned seed) {
  std::minstd_rand random(seed);
  const std::uint64_t count = std::uint64_t{1} * launch.groups[0] * launch.groups[1] * launch.groups[2];
  const std::uint32_t items = launch.items[0] * launch.items[1] * launch.items[2];
  // A compute unit has room for as many as its memory and 2048 work-items allow.
  const std::uint64_t of_a_unit = std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(2048 / std::max(items, 32U), 228 * 1024 / (launch.shared_bytes + 1024)));
  std::list<Group> resident;
  std::vector<std::vector<std::uint32_t>> spare_registers;
  const auto registers = [&] {
    if (spare_registers.empty()) return std::vector<std::uint32_t>(launch.entry->register_words);
    std::vector<std::uint32_t> taken = std::move(spare_registers.back());
    spare_registers.pop_back();
    return taken;
  };
  std::uint64_t begun = 0, idle = 0;
  const auto finish_some = [&](AsyncOperations& operations) {
    while (!operations.empty() && random() % 4 == 0) operations.finish_one(), idle = 0;
  };
  while (begun < count || !resident.empty()) {
    while (begun < count && resident.size() < of_a_unit * compute_units) {
      const auto x = static_cast<std::uint32_t>(begun % launch.groups[0]);
      const auto y = static_cast<std::uint32_t>(begun / launch.groups[0] % launch.groups[1]);
      const auto z = static_cast<std::uint32_t>(begun / launch.groups[0] / launch.groups[1]);
      Group& group = resident.emplace_back();
      group.launch = &launch, group.id = {x, y, z}, group.random = &random;
      group.compute_units = compute_units, ++begun;
      group.shared.assign(launch.shared_bytes, poison);
      group.proxies.start(launch.shared_bytes, (items + warp_lanes - 1) / warp_lanes);
      group.warps.reserve((items + warp_lanes - 1) / warp_lanes);
      for (std::uint32_t warp = 0; warp * warp_lanes < items; ++warp)
        group.warps.emplace_back(group, warp, registers());
    }
    for (Group& group : resident) {
      const std::size_t first = random() % group.warps.size();
      for (std::size_t i = 0; i < group.warps.size(); ++i) {
        Warp& warp = group.warps[(first + i) % group.warps.size()];
        const bool has_a_turn = warp.polls_since != group.barrier_changes;
        const bool ran = has_a_turn && warp.turn(static_cast<int>(1 + random() % longest_turn)) == Warp::State::ran;
        idle = ran ? 0 : idle + 1;
        finish_some(warp.copies);
        finish_some(warp.products);
      }
      while (!group.boxes.empty() && random() % 4 == 0) {
        std::swap(group.boxes[random() % group.boxes.size()], group.boxes.back());
        const std::function<void()> copy = std::move(group.boxes.back());
        group.boxes.pop_back();
        copy();
        idle = 0;
      }
    }
    if (idle > 100000) {
      std::string where = launch.entry->name + " waits for ever:";
      for (const Group& group : resident)
        for (const Warp& warp : group.warps) where += warp.where();
      throw Fault(where);
    }
    resident.remove_if([&](Group& group) {
      if (group.living_warps() != 0) return false;
      if (!group.boxes.empty()) throw Fault("a work-group ends before its boxes have come");
      for (Warp& warp : group.warps) spare_registers.push_back(warp.take_registers());
      return true;
    });
  }
}

}  // namespace simulated_gpu
