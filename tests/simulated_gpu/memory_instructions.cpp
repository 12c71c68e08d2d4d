// Loads, stores and atomics. Memory is coherent and in order.
#include <algorithm>
#include <atomic>

#include "tests/simulated_gpu/instruction_table.hpp"

namespace simulated_gpu {
namespace {

enum class Space { any, global, shared, local, parameter };

template <Space space>
u8* memory_at(Warp& warp, u64 address, std::size_t bytes) {
  if constexpr (space == Space::global) return warp.global_at(address, bytes);
  if constexpr (space == Space::any)
    return warp.is_local(address) ? warp.local_at(address) : warp.global_at(address, bytes);
  if constexpr (space == Space::shared) return warp.group.shared_at(address, bytes);
  if constexpr (space == Space::local) return warp.local_at(address);
  return const_cast<u8*>(warp.group.launch->parameters.data()) + address;
}
template <Space space, class T, int count>
Flow load(Warp& warp, const Instruction& instruction) {
  const Operand& from = instruction.operands[1];
  const Lanes<u64> base = warp.fetch<u64>(from.parts[0]);
  std::array<Lanes<T>, count> values;
  for (int lane = 0; lane < warp_lanes; ++lane) {
    if (!(warp.lanes >> lane & 1)) continue;
    const u8* const at = memory_at<space>(warp, base[lane] + from.value, count * sizeof(T));
    for (int i = 0; i < count; ++i) std::memcpy(&values[i][lane], at + i * sizeof(T), sizeof(T));
  }
  const Operand& to = instruction.operands[0];
  for (int i = 0; i < count; ++i) warp.store(to.kind == Operand::Kind::parts ? to.parts[i] : to, values[i]);
  return Flow::next;
}
template <Space space, class T, int count>
Flow store(Warp& warp, const Instruction& instruction) {
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const Lanes<u64> base = warp.fetch<u64>(to.parts[0]);
  for (int i = 0; i < count; ++i) {
    const Lanes<T> values = warp.fetch<T>(from.kind == Operand::Kind::parts ? from.parts[i] : from);
    for (int lane = 0; lane < warp_lanes; ++lane) {
      if (!(warp.lanes >> lane & 1)) continue;
      u8* const at = memory_at<space>(warp, base[lane] + to.value, count * sizeof(T));
      std::memcpy(at + i * sizeof(T), &values[lane], sizeof(T));
      if (space == Space::shared) warp.group.proxies.write(base[lane] + to.value, count * sizeof(T), warp.number);
    }
  }
  return Flow::next;
}

template <Space space, class Change, class T, bool has_result, int arguments>
Flow atomic(Warp& warp, const Instruction& instruction) {
  const Operand& address = instruction.operands[has_result];
  const Lanes<u64> base = warp.fetch<u64>(address.parts[0]);
  const Lanes<T> a = warp.fetch<T>(instruction.operands[has_result + 1]);
  const Lanes<T> b = warp.fetch<T>(instruction.operands[has_result + arguments]);
  Lanes<T> before{};
  for (int lane = 0; lane < warp_lanes; ++lane) {
    if (!(warp.lanes >> lane & 1)) continue;
    // Launches of several queues may run at the same time.
    std::atomic_ref<T> at(*reinterpret_cast<T*>(memory_at<space>(warp, base[lane] + address.value, sizeof(T))));
    before[lane] = at.load();
    while (!at.compare_exchange_weak(before[lane], Change{}(before[lane], a[lane], b[lane]))) {
    }
  }
  if constexpr (has_result) warp.store(instruction.operands[0], before);
  return Flow::next;
}

}  // namespace

void add_memory(Table& table) {
  const auto add = [&]<Space space>(const std::string& in) {
    const auto add_type = [&]<class T>(const std::string& type) {
      table["ld" + in + type] = load<space, T, 1>;
      table["ld" + in + ".v2" + type] = load<space, T, 2>;
      if constexpr (space == Space::parameter)
        return static_cast<void>(table["ld" + in + ".v4" + type] = load<space, T, 4>);
      table["st" + in + type] = store<space, T, 1>;
      table["st" + in + ".v2" + type] = store<space, T, 2>;
      if constexpr (sizeof(T) <= 4) {
        table["ld" + in + ".v4" + type] = load<space, T, 4>;
        table["st" + in + ".v4" + type] = store<space, T, 4>;
      }
    };
    for_types<u8, s8, u16, s16, u32, s32, u64, s64, f32, f64>(
        [&]<class T>() { add_type.template operator()<T>("." + name_of<T>()); });
    for_types<u8, u16, u32, u64>([&]<class T>() { add_type.template operator()<T>("." + bits_of<T>()); });
  };
  add.operator()<Space::any>("");
  add.operator()<Space::global>(".global");
  add.operator()<Space::global>(".const");
  add.operator()<Space::shared>(".shared");
  add.operator()<Space::local>(".local");
  add.operator()<Space::parameter>(".param");
  const auto add_atomics = [&]<Space space>(const std::string& in) {
    const auto add_one = [&]<class T, int arguments = 1, class Change>(const std::string& name, Change) {
      table["atom" + in + name] = atomic<space, Change, T, true, arguments>;
      table["red" + in + name] = atomic<space, Change, T, false, arguments>;
    };
    for_types<u32, s32, u64, s64>([&]<class T>() {
      const std::string type = "." + name_of<T>();
      add_one.template operator()<T>(
          ".add" + type, [](T old, T a, T) { return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + a); });
      add_one.template operator()<T>(".min" + type, [](T old, T a, T) { return std::min(old, a); });
      add_one.template operator()<T>(".max" + type, [](T old, T a, T) { return std::max(old, a); });
    });
    for_types<u32, u64>([&]<class T>() {
      const std::string type = "." + bits_of<T>();
      add_one.template operator()<T>(".and" + type, [](T old, T a, T) { return old & a; });
      add_one.template operator()<T>(".or" + type, [](T old, T a, T) { return old | a; });
      add_one.template operator()<T>(".xor" + type, [](T old, T a, T) { return old ^ a; });
      add_one.template operator()<T>(".exch" + type, [](T, T a, T) { return a; });
      add_one.template operator()<T, 2>(".cas" + type,
                                        [](T old, T expected, T b) { return old == expected ? b : old; });
    });
  };
  add_atomics.operator()<Space::global>(".global");
  add_atomics.operator()<Space::shared>(".shared");
}

}  // namespace simulated_gpu
