#pragma once
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/simulated_gpu/warp.hpp"

/// The building blocks of the simulated instructions, and the table of all of them.
namespace simulated_gpu {

using Table = std::map<std::string, Execute, std::less<>>;

void add_arithmetic(Table& table);
void add_conversions(Table& table);
void add_memory(Table& table);
void add_control(Table& table);
void add_matrix_products(Table& table);
void add_asynchronous_copies(Table& table);

using u8 = std::uint8_t;
using s8 = std::int8_t;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

template <class T>
std::string name_of() {
  const char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 's' : 'u';
  return kind + std::to_string(8 * sizeof(T));
}
template <class T>
std::string bits_of() {
  return "b" + std::to_string(8 * sizeof(T));
}

/// Computes each lane's result from that lane's operands.
template <class F, class Result, class... Arguments>
Flow run_each_lane(Warp& warp, const Instruction& instruction) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    const std::tuple<Lanes<Arguments>...> from{warp.fetch<Arguments>(instruction.operands[i + 1])...};
    Lanes<Result> to;
    for (int lane = 0; lane < warp_lanes; ++lane) to[lane] = static_cast<Result>(F{}(std::get<i>(from)[lane]...));
    warp.store(instruction.operands[0], to);
    return Flow::next;
  }
  (std::index_sequence_for<Arguments...>());
}
template <class Result, class... Arguments, class F>
Execute each_lane(F) {
  return run_each_lane<F, Result, Arguments...>;
}

template <class... Types, class Do>
void for_types(Do add) {
  (add.template operator()<Types>(), ...);
}

/// Calls `what` for each lane that is set in `lanes`.
template <class Do>
void for_lanes(Mask lanes, Do what) {
  for (int lane = 0; lane < warp_lanes; ++lane)
    if (lanes >> lane & 1) what(lane);
}
/// Each lane's address, given by an operand in brackets: a base and an offset.
inline Lanes<u64> addresses(const Warp& warp, const Operand& of) {
  Lanes<u64> at = warp.fetch<u64>(of.parts[0]);
  for (u64& one : at) one += of.value;
  return at;
}

}  // namespace simulated_gpu
