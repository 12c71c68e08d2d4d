// Moves and conversions.
#include <cmath>
#include <limits>

#include "tests/simulated_gpu/instruction_table.hpp"
#include "tests/simulated_gpu/short_floats.hpp"

namespace simulated_gpu {
namespace {

/// Splits a register into the parts of a vector operand, or joins such parts into a register.
template <class Whole, class Part>
Flow move_parts(Warp& warp, const Instruction& instruction) {
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  constexpr int count = sizeof(Whole) / sizeof(Part);
  if (to.kind == Operand::Kind::parts) {
    const Lanes<Whole> whole = warp.fetch<Whole>(from);
    for (int part = 0; part < count; ++part) {
      Lanes<Part> lanes;
      for (int lane = 0; lane < warp_lanes; ++lane)
        lanes[lane] = static_cast<Part>(whole[lane] >> 8 * sizeof(Part) * part);
      warp.store(to.parts[part], lanes);
    }
    return Flow::next;
  }
  Lanes<Whole> whole{};
  for (int part = 0; part < count; ++part) {
    const Lanes<Part> lanes = warp.fetch<Part>(from.parts[part]);
    for (int lane = 0; lane < warp_lanes; ++lane)
      whole[lane] |= static_cast<Whole>(Whole{lanes[lane]} << 8 * sizeof(Part) * part);
  }
  warp.store(to, whole);
  return Flow::next;
}
Flow move_32(Warp& warp, const Instruction& instruction) {
  const bool in_parts =
      instruction.operands[0].kind == Operand::Kind::parts || instruction.operands[1].kind == Operand::Kind::parts;
  return in_parts ? move_parts<u32, u16>(warp, instruction)
                  : each_lane<u32, u32>([](u32 a) { return a; })(warp, instruction);
}
Flow move_64(Warp& warp, const Instruction& instruction) {
  for (const Operand& operand : instruction.operands)
    if (operand.kind == Operand::Kind::parts)
      return operand.parts.size() == 4 ? move_parts<u64, u16>(warp, instruction)
                                       : move_parts<u64, u32>(warp, instruction);
  return each_lane<u64, u64>([](u64 a) { return a; })(warp, instruction);
}

template <class To, class From>
To to_integer(From value) {
  if (std::isnan(value)) return 0;
  const From least = static_cast<From>(std::numeric_limits<To>::min());
  if (value <= least) return std::numeric_limits<To>::min();
  if (value >= std::ldexp(static_cast<From>(1), std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}
}  // namespace

void add_conversions(Table& table) {
  for_types<u8, s8, u16, s16, u32, s32, u64, s64>([&]<class To>() {
    const std::string to = "." + name_of<To>();
    for_types<u8, s8, u16, s16, u32, s32, u64, s64>([&]<class From>() {
      table["cvt" + to + "." + name_of<From>()] = each_lane<To, From>([](From a) { return static_cast<To>(a); });
    });
    for_types<f32, f64>([&]<class From>() {
      const std::string from = to + "." + name_of<From>();
      table["cvt.rzi" + from] = each_lane<To, From>([](From a) { return to_integer<To>(std::trunc(a)); });
      table["cvt.rni" + from] = each_lane<To, From>([](From a) { return to_integer<To>(std::nearbyint(a)); });
      table["cvt.rmi" + from] = each_lane<To, From>([](From a) { return to_integer<To>(std::floor(a)); });
      table["cvt.rpi" + from] = each_lane<To, From>([](From a) { return to_integer<To>(std::ceil(a)); });
      table["cvt.rn." + name_of<From>() + to] = each_lane<From, To>([](To a) { return static_cast<From>(a); });
    });
  });
  for_types<f32, f64>([&]<class T>() {
    const std::string type = "." + name_of<T>() + "." + name_of<T>();
    table["cvt.rzi" + type] = each_lane<T, T>([](T a) { return std::trunc(a); });
    table["cvt.rni" + type] = each_lane<T, T>([](T a) { return std::nearbyint(a); });
    table["cvt.rmi" + type] = each_lane<T, T>([](T a) { return std::floor(a); });
    table["cvt.rpi" + type] = each_lane<T, T>([](T a) { return std::ceil(a); });
  });
  table["cvt.f64.f32"] = each_lane<f64, f32>([](f32 a) { return f64{a}; });
  table["cvt.rn.f32.f64"] = each_lane<f32, f64>([](f64 a) { return static_cast<f32>(a); });
  table["cvt.f32.f16"] = each_lane<f32, u16>([](u16 a) { return static_cast<f32>(F16::decode(a)); });
  table["cvt.rn.f16.f32"] = each_lane<u16, f32>([](f32 a) { return F16::encode(a); });
  // The first operand goes to the upper half.
  table["cvt.rn.f16x2.f32"] =
      each_lane<u32, f32, f32>([](f32 a, f32 b) { return u32{F16::encode(a)} << 16 | F16::encode(b); });
  table["cvt.rn.bf16x2.f32"] =
      each_lane<u32, f32, f32>([](f32 a, f32 b) { return u32{Bf16::encode(a)} << 16 | Bf16::encode(b); });
  table["cvt.rn.satfinite.e4m3x2.f32"] = each_lane<u16, f32, f32>(
      [](f32 a, f32 b) { return moecl::fp8_e4m3fn.encode(a) << 8 | moecl::fp8_e4m3fn.encode(b); });
  table["mov.b32"] = move_32;
  table["mov.b64"] = move_64;
}

}  // namespace simulated_gpu
