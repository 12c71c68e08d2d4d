// Asynchronous copies, and the mbarriers that track them.
// Source: PTX ISA, sections on cp.async, mbarrier, cp.async.bulk.tensor and tensormap.replace.
#include <algorithm>

#include "tests/simulated_gpu/instruction_table.hpp"

namespace simulated_gpu {
namespace {

/// The fourth operand is the number of source bytes, or a predicate that makes it 0. The rest is filled with 0.
template <std::size_t size>
Flow copy_bytes(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> to = addresses(warp, instruction.operands[0]),
                             from = addresses(warp, instruction.operands[1]);
  Lanes<std::uint32_t> bytes = warp.fetch<std::uint32_t>(instruction.operands[3]);
  if (instruction.operands[3].is_predicate)
    for (std::uint32_t& of_lane : bytes) of_lane = of_lane != 0 ? 0 : size;
  for_lanes(warp.lanes, [&](int lane) {
    warp.group.shared_at(to[lane], size);
    if (bytes[lane] > size || from[lane] % size != 0)
      throw Fault("cp.async: more bytes than it copies, or not aligned");
    if (bytes[lane] != 0) warp.global_at(from[lane], bytes[lane] == size ? size : 1);
  });
  warp.copies.add([&warp, to, from, bytes, lanes = warp.lanes] {
    for_lanes(lanes, [&](int lane) {
      std::uint8_t* const room = warp.group.shared_at(to[lane], size);
      std::fill_n(room, size, std::uint8_t{0});
      std::memcpy(room, reinterpret_cast<const void*>(from[lane]), bytes[lane]);
      warp.group.proxies.write(to[lane], size, warp.number);
    });
  });
  return Flow::next;
}
Flow commit_copies(Warp& warp, const Instruction&) {
  if (!warp.all_are_here()) return Flow::wait;  // commit groups of single lanes are not simulated
  warp.copies.commit();
  return Flow::next;
}
Flow wait_for_copies(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  warp.copies.finish_but(static_cast<int>(instruction.operands[0].value));
  return Flow::next;
}

Flow start_barrier(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> at = addresses(warp, instruction.operands[0]);
  const Lanes<std::uint32_t> count = warp.fetch<std::uint32_t>(instruction.operands[1]);
  for_lanes(warp.lanes, [&](int lane) {
    warp.group.change_barrier(at[lane], [&](Barrier& barrier) { barrier = Barrier::of(count[lane]); });
  });
  return Flow::next;
}
Flow arrive(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> at = addresses(warp, instruction.operands[1]);
  for_lanes(warp.lanes, [&](int lane) { warp.group.arrive(at[lane], 1); });
  return Flow::next;
}
Flow arrive_after_copies(Warp& warp, const Instruction& instruction) {
  warp.copies.add([&group = warp.group, at = addresses(warp, instruction.operands[0]), lanes = warp.lanes] {
    for_lanes(lanes, [&](int lane) { group.arrive(at[lane], 1); });
  });
  warp.copies.commit();
  return Flow::next;
}
Flow expect_bytes(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> at = addresses(warp, instruction.operands[0]);
  const Lanes<std::uint32_t> bytes = warp.fetch<std::uint32_t>(instruction.operands[1]);
  for_lanes(warp.lanes, [&](int lane) {
    warp.group.change_barrier(at[lane], [&](Barrier& barrier) { barrier.expect(bytes[lane]); });
  });
  return Flow::next;
}
Flow try_wait(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> at = addresses(warp, instruction.operands[1]);
  const Lanes<std::uint32_t> parity = warp.fetch<std::uint32_t>(instruction.operands[2]);
  Lanes<std::uint32_t> has_left{};
  bool all_have = true;
  for_lanes(warp.lanes, [&](int lane) {
    if (lane > 0 && (warp.lanes >> (lane - 1) & 1) != 0 && at[lane] == at[lane - 1] && parity[lane] == parity[lane - 1])
      return static_cast<void>(has_left[lane] = has_left[lane - 1]);
    const Barrier barrier = warp.group.barrier_at(at[lane]);
    if (!barrier.is_valid) throw Fault("no barrier to wait for");
    has_left[lane] = barrier.phase != (parity[lane] & 1);
    all_have = all_have && has_left[lane] != 0;
  });
  warp.store(instruction.operands[0], has_left);
  if (all_have) return Flow::next;
  if (warp.all_are_here()) warp.polls_since = warp.group.barrier_changes;
  return Flow::yield;
}

/// The content of a tensor map. Its real layout in 128 bytes is opaque to programs.
struct TensorMap {
  std::uint64_t address;
  std::uint64_t strides[4];  ///< in bytes, from dimension 1 on
  std::uint32_t sizes[5], box[5], element_strides[5];
  std::uint32_t last_dimension, element_type, interleave, swizzle, fill;
};
static_assert(sizeof(TensorMap) <= 128);

template <auto field, bool is_array>
Flow replace(Warp& warp, const Instruction& instruction) {
  const Lanes<std::uint64_t> at = addresses(warp, instruction.operands[0]);
  const std::uint64_t index = is_array ? instruction.operands[1].value : 0;
  const Lanes<std::uint64_t> value = warp.fetch<std::uint64_t>(instruction.operands[1 + is_array]);
  for_lanes(warp.lanes, [&](int lane) {
    std::uint8_t* const room = warp.group.shared_at(at[lane], 128);
    TensorMap map;
    std::memcpy(&map, room, sizeof(map));
    if constexpr (is_array)
      (map.*field)[index] = static_cast<std::remove_reference_t<decltype((map.*field)[0])>>(value[lane]);
    else
      map.*field = static_cast<std::remove_reference_t<decltype(map.*field)>>(value[lane]);
    std::memcpy(room, &map, sizeof(map));
  });
  return Flow::next;
}
Flow publish_map(Warp& warp, const Instruction& instruction) {
  if (!warp.all_are_here()) return Flow::wait;
  const std::uint64_t to = addresses(warp, instruction.operands[0])[0],
                      from = addresses(warp, instruction.operands[1])[0];
  if (to % 128 != 0) throw Fault("tensormap: a map that is not aligned");
  std::memcpy(warp.global_at(to, 128), warp.group.shared_at(from, 128), 128);
  return Flow::next;
}

void copy_box(Warp& warp, const TensorMap& map, std::uint64_t to, const std::array<std::int64_t, 3>& place) {
  for (std::uint32_t outer = 0; outer < map.box[2]; ++outer)
    for (std::uint32_t line = 0; line < map.box[1]; ++line) {
      const std::int64_t y = place[1] + line, z = place[2] + outer;
      const bool is_inside = y >= 0 && y < map.sizes[1] && z >= 0 && z < map.sizes[2];
      const std::uint64_t from = map.address + y * map.strides[0] + z * map.strides[1];
      const std::uint64_t room = to + (outer * map.box[1] + line) * map.box[0];
      for (std::uint32_t i = 0; i < map.box[0]; i += 16) {
        const std::uint64_t at = (room + i) ^ ((room + i) >> 7 & 7) << 4;
        std::uint8_t* const bytes = warp.group.shared_at(at, 16);
        warp.group.proxies.check(at, warp.number);
        const std::int64_t left = is_inside ? std::clamp<std::int64_t>(map.sizes[0] - (place[0] + i), 0, 16) : 0;
        std::fill_n(bytes, 16, std::uint8_t{0});
        if (left != 0) std::memcpy(bytes, warp.global_bytes(from + place[0] + i, left), left);
      }
    }
}
Flow begin_box(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Lanes<std::uint64_t> to = addresses(warp, operands[0]), maps = addresses(warp, operands[1]),
                             barrier = addresses(warp, operands[2]);
  std::array<Lanes<std::int32_t>, 3> places;
  for (int i = 0; i < 3; ++i) places[i] = warp.fetch<std::int32_t>(operands[1].parts[1].parts[i]);
  for_lanes(warp.lanes, [&](int lane) {
    TensorMap map;
    std::memcpy(&map, warp.global_at(maps[lane], 128), sizeof(map));
    if (map.last_dimension != 2 || map.element_type != 0 || map.interleave != 0 || map.swizzle != 3 || map.fill != 0 ||
        map.box[0] != 128 || map.box[1] == 0 || map.box[1] > 256 || map.box[2] == 0 ||
        std::any_of(map.element_strides, map.element_strides + 3, [](std::uint32_t stride) { return stride != 1; }))
      throw Fault("cp.async.bulk.tensor: a map that is not simulated");
    if (map.address % 16 != 0 || map.strides[0] % 16 != 0 || map.strides[1] % 16 != 0 || to[lane] % 1024 != 0)
      throw Fault("cp.async.bulk.tensor: a tensor or a box that is not aligned");
    const std::array<std::int64_t, 3> place = {places[0][lane], places[1][lane], places[2][lane]};
    if (place[0] < 0 || place[0] % 16 != 0) throw Fault("cp.async.bulk.tensor: a box that is not simulated");
    warp.group.boxes.emplace_back([&warp, map, place, to = to[lane], barrier = barrier[lane]] {
      copy_box(warp, map, to, place);
      warp.group.change_barrier(barrier, [&](Barrier& at) {
        at.expect(-std::uint64_t{map.box[0]} * map.box[1] * map.box[2]);
        at.complete_if_done();
      });
    });
  });
  return Flow::next;
}
Flow fence_proxies(Warp& warp, const Instruction&) {
  warp.group.proxies.fence(warp.number);
  return Flow::next;
}
Flow fence_map(Warp&, const Instruction&) { return Flow::next; }

}  // namespace

void add_asynchronous_copies(Table& table) {
  table["cp.async.ca.shared.global"] = copy_bytes<4>;
  table["cp.async.cg.shared.global"] = copy_bytes<16>;
  table["cp.async.commit_group"] = commit_copies;
  table["cp.async.wait_group"] = wait_for_copies;
  table["cp.async.mbarrier.arrive.noinc.shared::cta.b64"] = arrive_after_copies;
  table["mbarrier.init.shared::cta.b64"] = start_barrier;
  table["mbarrier.arrive.shared::cta.b64"] = arrive;
  table["mbarrier.expect_tx.relaxed.cta.shared::cta.b64"] = expect_bytes;
  table["mbarrier.try_wait.parity.shared::cta.b64"] = try_wait;
  const auto field = [&](const std::string& name, const std::string& type, Execute set) {
    table["tensormap.replace.tile." + name + ".shared::cta.b1024." + type] = set;
  };
  field("global_address", "b64", replace<&TensorMap::address, false>);
  field("global_stride", "b64", replace<&TensorMap::strides, true>);
  field("global_dim", "b32", replace<&TensorMap::sizes, true>);
  field("box_dim", "b32", replace<&TensorMap::box, true>);
  field("element_stride", "b32", replace<&TensorMap::element_strides, true>);
  field("rank", "b32", replace<&TensorMap::last_dimension, false>);
  field("elemtype", "b32", replace<&TensorMap::element_type, false>);
  field("interleave_layout", "b32", replace<&TensorMap::interleave, false>);
  field("swizzle_mode", "b32", replace<&TensorMap::swizzle, false>);
  field("fill_mode", "b32", replace<&TensorMap::fill, false>);
  table["tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"] = publish_map;
  table["cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"] = begin_box;
  table["fence.proxy.async.shared::cta"] = fence_proxies;
  table["fence.proxy.tensormap::generic.acquire.gpu"] = fence_map;
}

}  // namespace simulated_gpu
