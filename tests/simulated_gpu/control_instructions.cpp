// Jumps, barriers, and warp-wide operations.
#include <algorithm>

#include "tests/simulated_gpu/instruction_table.hpp"

namespace simulated_gpu {
namespace {

Flow nothing(Warp&, const Instruction&) { return Flow::next; }
Flow jump(Warp&, const Instruction&) { return Flow::jump; }
Flow leave(Warp&, const Instruction&) { return Flow::exit; }
/// Waits until all lanes of the warp have arrived.
Flow meet_warp(Warp& warp, const Instruction&) { return warp.all_are_here() ? Flow::next : Flow::wait; }
/// Source: PTX ISA, bar: a barrier completes, and is reset, once the awaited number of warps has arrived.
auto& group_barrier(Warp& warp, const Instruction& instruction) {
  const u32 number = warp.fetch<u32>(instruction.operands[0])[0];
  if (number >= std::size(warp.group.barriers)) throw Fault("bar: no barrier " + std::to_string(number));
  return warp.group.barriers[number];
}
u32 awaited_warps(const Warp& warp, const Instruction& instruction) {
  return instruction.operands.size() > 1 ? static_cast<u32>(instruction.operands[1].value / warp_lanes)
                                         : warp.group.living_warps();
}
Flow meet_group(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  auto& barrier = group_barrier(warp, instruction);
  if (!warp.is_at_barrier) {
    warp.is_at_barrier = true, warp.barrier_generation = barrier.generation;
    ++barrier.arrived;
  }
  if (barrier.generation == warp.barrier_generation) {
    if (barrier.arrived < awaited_warps(warp, instruction)) return Flow::wait;
    barrier.arrived = 0, ++barrier.generation;
  }
  warp.is_at_barrier = false;
  return Flow::next;
}
Flow arrive_at_group(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  auto& barrier = group_barrier(warp, instruction);
  if (++barrier.arrived >= awaited_warps(warp, instruction)) barrier.arrived = 0, ++barrier.generation;
  return Flow::next;
}

/// A reduction over the lanes of a warp. All lanes take part.
template <class T, class F>
Flow run_over_lanes(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Lanes<T> from = warp.fetch<T>(instruction.operands[1]);
  Lanes<T> to;
  bool is_first = true;
  T all{};
  for (int lane = 0; lane < warp_lanes; ++lane)
    if (warp.lanes >> lane & 1) all = is_first ? from[lane] : static_cast<T>(F{}(all, from[lane])), is_first = false;
  to.fill(all);
  warp.store(instruction.operands[0], to);
  return Flow::next;
}
template <class T, class F>
Execute over_lanes(F) {
  return run_over_lanes<T, F>;
}
Flow ballot(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Lanes<u32> yes = warp.fetch<u32>(instruction.operands[1]);
  u32 all = 0;
  for (int lane = 0; lane < warp_lanes; ++lane) all |= (yes[lane] & warp.lanes >> lane & 1) << lane;
  Lanes<u32> to;
  to.fill(all);
  warp.store(instruction.operands[0], to);
  return Flow::next;
}
Flow match_any(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Lanes<u32> from = warp.fetch<u32>(instruction.operands[1]);
  Lanes<u32> to{};
  for (int lane = 0; lane < warp_lanes; ++lane)
    for (int other = 0; other < warp_lanes; ++other)
      if (from[other] == from[lane]) to[lane] |= warp.lanes & 1u << other;
  warp.store(instruction.operands[0], to);
  return Flow::next;
}
/// Source: PTX ISA, the pseudocode of shfl.sync.
enum class Way { up, down, butterfly, index };
template <Way way>
Flow shuffle(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const Lanes<u32> from = warp.fetch<u32>(instruction.operands[1]), b = warp.fetch<u32>(instruction.operands[2]),
                   c = warp.fetch<u32>(instruction.operands[3]);
  Lanes<u32> to;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    const int by = b[lane] & 31, clamp = c[lane] & 31, segments = c[lane] >> 8 & 31;
    const int last = (lane & segments) | (clamp & ~segments), first = lane & segments;
    int source = 0;
    bool is_inside = false;
    switch (way) {
      case Way::up:
        source = lane - by, is_inside = source >= last;
        break;
      case Way::down:
        source = lane + by, is_inside = source <= last;
        break;
      case Way::butterfly:
        source = lane ^ by, is_inside = source <= last;
        break;
      case Way::index:
        source = first | (by & ~segments), is_inside = source <= last;
        break;
    }
    to[lane] = from[is_inside ? source : lane];
  }
  warp.store(instruction.operands[0], to);
  return Flow::next;
}

}  // namespace

void add_control(Table& table) {
  table["bra"] = table["bra.uni"] = jump;
  table["ret"] = table["exit"] = leave;
  table["bar.sync"] = meet_group;
  table["bar.arrive"] = arrive_at_group;
  table["bar.warp.sync"] = meet_warp;
  for (const char* name : {"membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.acq_rel.sys",
                           "setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"})
    table[name] = nothing;
  table["redux.sync.max.u32"] = over_lanes<u32>([](u32 a, u32 b) { return std::max(a, b); });
  table["redux.sync.min.u32"] = over_lanes<u32>([](u32 a, u32 b) { return std::min(a, b); });
  table["redux.sync.max.s32"] = over_lanes<s32>([](s32 a, s32 b) { return std::max(a, b); });
  table["redux.sync.min.s32"] = over_lanes<s32>([](s32 a, s32 b) { return std::min(a, b); });
  table["vote.sync.ballot.b32"] = ballot;
  table["match.any.sync.b32"] = match_any;
  table["shfl.sync.up.b32"] = shuffle<Way::up>;
  table["shfl.sync.down.b32"] = shuffle<Way::down>;
  table["shfl.sync.bfly.b32"] = shuffle<Way::butterfly>;
  table["shfl.sync.idx.b32"] = shuffle<Way::index>;
}

}  // namespace simulated_gpu
