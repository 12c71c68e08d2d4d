// Arithmetic and comparison instructions. A predicate is a word that is 0 or 1.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/simulated_gpu/instruction_table.hpp"
#include "tests/simulated_gpu/short_floats.hpp"

namespace simulated_gpu {
namespace {

void add_integers(Table& table) {
  for_types<u16, s16, u32, s32, u64, s64>([&]<class T>() {
    using U = std::make_unsigned_t<T>;
    const std::string type = "." + name_of<T>();
    table["add" + type] = each_lane<U, U, U>([](U a, U b) { return static_cast<U>(a + b); });
    table["sub" + type] = each_lane<U, U, U>([](U a, U b) { return static_cast<U>(a - b); });
    table["mul.lo" + type] = each_lane<U, U, U>([](U a, U b) { return static_cast<U>(u64{a} * b); });
    table["mad.lo" + type] = each_lane<U, U, U, U>([](U a, U b, U c) { return static_cast<U>(u64{a} * b + c); });
    // The result of a division by 0 is unspecified. It must not trap here: inactive lanes may divide by 0.
    table["div" + type] = each_lane<T, T, T>([](T a, T b) {
      return b == 0                    ? static_cast<T>(-1)
             : b == static_cast<T>(-1) ? static_cast<T>(std::is_signed_v<T> ? -static_cast<U>(a) : a / b)
                                       : static_cast<T>(a / b);
    });
    table["rem" + type] = each_lane<T, T, T>([](T a, T b) {
      return b == 0 ? a : std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
    });
    table["min" + type] = each_lane<T, T, T>([](T a, T b) { return std::min(a, b); });
    table["max" + type] = each_lane<T, T, T>([](T a, T b) { return std::max(a, b); });
    table["neg" + type] = each_lane<U, U>([](U a) { return static_cast<U>(-a); });
    table["abs" + type] = each_lane<T, T>([](T a) { return static_cast<T>(a < 0 ? -a : a); });
    table["shr" + type] = each_lane<T, T, u32>(
        [](T a, u32 by) { return by < 8 * sizeof(T) ? static_cast<T>(a >> by) : static_cast<T>(a < 0 ? -1 : 0); });
    if constexpr (sizeof(T) <= 4) {
      using Wide = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                                      std::conditional_t<std::is_signed_v<T>, s64, u64>>;
      table["mul.hi" + type] =
          each_lane<T, T, T>([](T a, T b) { return static_cast<T>(static_cast<Wide>(a) * b >> 8 * sizeof(T)); });
      table["mul.wide" + type] = each_lane<Wide, T, T>([](T a, T b) { return static_cast<Wide>(a) * b; });
      table["mad.wide" + type] =
          each_lane<Wide, T, T, Wide>([](T a, T b, Wide c) { return static_cast<Wide>(a) * b + c; });
    }
    if constexpr (sizeof(T) >= 4)
      table["bfe" + type] = each_lane<T, T, u32, u32>([](T a, u32 at, u32 count) {
        constexpr u32 bits = 8 * sizeof(T);
        at &= 255, count &= 255;
        if (count == 0 || at >= bits) return static_cast<T>(std::is_signed_v<T> && count != 0 && a < 0 ? -1 : 0);
        count = std::min(count, bits - at);
        return static_cast<T>(static_cast<T>(static_cast<U>(a) << (bits - at - count)) >> (bits - count));
      });
  });
  for_types<u16, u32, u64>([&]<class T>() {
    const std::string type = "." + bits_of<T>();
    table["and" + type] = each_lane<T, T, T>([](T a, T b) { return static_cast<T>(a & b); });
    table["or" + type] = each_lane<T, T, T>([](T a, T b) { return static_cast<T>(a | b); });
    table["xor" + type] = each_lane<T, T, T>([](T a, T b) { return static_cast<T>(a ^ b); });
    table["not" + type] = each_lane<T, T>([](T a) { return static_cast<T>(~a); });
    table["shl" + type] =
        each_lane<T, T, u32>([](T a, u32 by) { return static_cast<T>(by < 8 * sizeof(T) ? u64{a} << by : 0); });
    table["shr" + type] =
        each_lane<T, T, u32>([](T a, u32 by) { return static_cast<T>(by < 8 * sizeof(T) ? a >> by : 0); });
    if constexpr (sizeof(T) >= 4) {
      table["clz" + type] = each_lane<u32, T>([](T a) { return static_cast<u32>(std::countl_zero(a)); });
      table["popc" + type] = each_lane<u32, T>([](T a) { return static_cast<u32>(std::popcount(a)); });
      table["bfi" + type] = each_lane<T, T, T, u32, u32>([](T a, T b, u32 at, u32 count) {
        const T ones = count >= 8 * sizeof(T) ? ~T{0} : (T{1} << count) - 1;
        return at >= 8 * sizeof(T) ? b : (b & ~(ones << at)) | (a & ones) << at;
      });
    }
  });
  table["prmt.b32"] = each_lane<u32, u32, u32, u32>([](u32 a, u32 b, u32 which) {
    const u64 bytes = u64{b} << 32 | a;
    u32 chosen = 0;
    for (int i = 0; i < 4; ++i) {
      const u32 choice = which >> (4 * i) & 15;
      u32 byte = bytes >> (choice & 7) * 8 & 255;
      if (choice & 8) byte = byte & 128 ? 255 : 0;
      chosen |= byte << 8 * i;
    }
    return chosen;
  });
  table["lop3.b32"] = each_lane<u32, u32, u32, u32, u32>([](u32 a, u32 b, u32 c, u32 of_bits) {
    u32 result = 0;
    for (int i = 0; i < 32; ++i) result |= (of_bits >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    return result;
  });
  table["shf.l.wrap.b32"] = each_lane<u32, u32, u32, u32>(
      [](u32 low, u32 high, u32 by) { return static_cast<u32>(((u64{high} << 32 | low) << (by & 31)) >> 32); });
  table["shf.r.wrap.b32"] = each_lane<u32, u32, u32, u32>(
      [](u32 low, u32 high, u32 by) { return static_cast<u32>((u64{high} << 32 | low) >> (by & 31)); });
  table["and.pred"] = each_lane<u32, u32, u32>([](u32 a, u32 b) { return a & b; });
  table["or.pred"] = each_lane<u32, u32, u32>([](u32 a, u32 b) { return a | b; });
  table["xor.pred"] = each_lane<u32, u32, u32>([](u32 a, u32 b) { return (a ^ b) & 1; });
  table["not.pred"] = each_lane<u32, u32>([](u32 a) { return ~a & 1; });
}

template <class T, bool of_nan_is_nan = false>
T larger(T a, T b) {
  if (std::isnan(a) || std::isnan(b))
    return of_nan_is_nan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN()
           : std::isnan(a)                                   ? b
                                                             : a;
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}

float without_subnormals(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

void add_floats(Table& table) {
  for_types<f32, f64>([&]<class T>() {
    const std::string type = "." + name_of<T>();
    for (const char* rounding : {"", ".rn"}) {
      table["add" + (rounding + type)] = each_lane<T, T, T>([](T a, T b) { return a + b; });
      table["sub" + (rounding + type)] = each_lane<T, T, T>([](T a, T b) { return a - b; });
      table["mul" + (rounding + type)] = each_lane<T, T, T>([](T a, T b) { return a * b; });
    }
    table["div.rn" + type] = each_lane<T, T, T>([](T a, T b) { return a / b; });
    table["fma.rn" + type] = each_lane<T, T, T, T>([](T a, T b, T c) { return std::fma(a, b, c); });
    table["sqrt.rn" + type] = each_lane<T, T>([](T a) { return std::sqrt(a); });
    table["rcp.rn" + type] = each_lane<T, T>([](T a) { return 1 / a; });
    table["neg" + type] = each_lane<T, T>([](T a) { return -a; });
    table["abs" + type] = each_lane<T, T>([](T a) { return std::abs(a); });
    table["max" + type] = each_lane<T, T, T>([](T a, T b) { return larger(a, b); });
    table["min" + type] = each_lane<T, T, T>([](T a, T b) { return -larger(-a, -b); });
    table["max.NaN" + type] = each_lane<T, T, T>([](T a, T b) { return larger<T, true>(a, b); });
    table["min.NaN" + type] = each_lane<T, T, T>([](T a, T b) { return -larger<T, true>(-a, -b); });
    table["copysign" + type] = each_lane<T, T, T>([](T a, T b) { return std::copysign(b, a); });
  });
  table["div.full.f32"] = table["div.approx.f32"] = table["div.rn.f32"];
  table["ex2.approx.ftz.f32"] = each_lane<f32, f32>([](f32 a) {
    return without_subnormals(static_cast<f32>(std::exp2(static_cast<double>(without_subnormals(a)))));
  });
  table["ex2.approx.f32"] =
      each_lane<f32, f32>([](f32 a) { return static_cast<f32>(std::exp2(static_cast<double>(a))); });
  table["lg2.approx.f32"] =
      each_lane<f32, f32>([](f32 a) { return static_cast<f32>(std::log2(static_cast<double>(a))); });
  table["rcp.approx.ftz.f32"] =
      each_lane<f32, f32>([](f32 a) { return without_subnormals(1 / without_subnormals(a)); });
  table["rsqrt.approx.f32"] =
      each_lane<f32, f32>([](f32 a) { return static_cast<f32>(1 / std::sqrt(static_cast<double>(a))); });
  table["cvt.rni.f16.f16"] = each_lane<u16, u16>([](u16 a) { return F16::encode(std::nearbyint(F16::decode(a))); });
  table["add.rn.f16"] = table["add.f16"] =
      each_lane<u16, u16, u16>([](u16 a, u16 b) { return F16::encode(F16::decode(a) + F16::decode(b)); });
  table["sub.rn.f16"] = table["sub.f16"] =
      each_lane<u16, u16, u16>([](u16 a, u16 b) { return F16::encode(F16::decode(a) - F16::decode(b)); });
  table["mul.rn.f16"] = table["mul.f16"] =
      each_lane<u16, u16, u16>([](u16 a, u16 b) { return F16::encode(F16::decode(a) * F16::decode(b)); });
  const auto compare = [&]<class Compare>(const std::string& name, Compare) {
    table["setp." + name + ".f16"] =
        each_lane<u32, u16, u16>([](u16 a, u16 b) { return Compare{}(F16::decode(a), F16::decode(b)); });
  };
  compare("eq", std::equal_to<>());
  compare("neu", std::not_equal_to<>());
  compare("lt", std::less<>());
  compare("le", std::less_equal<>());
  compare("gt", std::greater<>());
  compare("ge", std::greater_equal<>());
  table["setp.num.f16"] =
      each_lane<u32, u16, u16>([](u16 a, u16 b) { return !std::isnan(F16::decode(a)) && !std::isnan(F16::decode(b)); });
  table["setp.nan.f16"] =
      each_lane<u32, u16, u16>([](u16 a, u16 b) { return std::isnan(F16::decode(a)) || std::isnan(F16::decode(b)); });
  table["fma.rn.bf16x2"] =
      each_lane<u32, u32, u32, u32>([](u32 a, u32 b, u32 c) { return fma_of_pairs<Bf16>(a, b, c); });
  table["fma.rn.f16x2"] = each_lane<u32, u32, u32, u32>([](u32 a, u32 b, u32 c) { return fma_of_pairs<F16>(a, b, c); });
}

template <class T>
u32 is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return 0;
}
void add_comparisons(Table& table) {
  const auto add = [&]<class T>(const std::string& type) {
    table["setp.eq" + type] = each_lane<u32, T, T>([](T a, T b) { return a == b; });
    table["setp.ne" + type] = each_lane<u32, T, T>([](T a, T b) { return a != b && !is_nan(a) && !is_nan(b); });
    table["setp.lt" + type] = each_lane<u32, T, T>([](T a, T b) { return a < b; });
    table["setp.le" + type] = each_lane<u32, T, T>([](T a, T b) { return a <= b; });
    table["setp.gt" + type] = each_lane<u32, T, T>([](T a, T b) { return a > b; });
    table["setp.ge" + type] = each_lane<u32, T, T>([](T a, T b) { return a >= b; });
    table["selp" + type] = each_lane<T, T, T, u32>([](T a, T b, u32 first) { return first & 1 ? a : b; });
    table["mov" + type] = each_lane<T, T>([](T a) { return a; });
    table["slct" + type + ".s32"] = each_lane<T, T, T, s32>([](T a, T b, s32 c) { return c >= 0 ? a : b; });
  };
  for_types<u16, s16, u32, s32, u64, s64, f32, f64>([&]<class T>() { add.template operator()<T>("." + name_of<T>()); });
  for_types<u16, u32, u64>([&]<class T>() { add.template operator()<T>("." + bits_of<T>()); });
  for_types<f32, f64>([&]<class T>() {
    const std::string type = "." + name_of<T>();
    table["setp.equ" + type] = each_lane<u32, T, T>([](T a, T b) { return !(a < b || a > b); });
    table["setp.neu" + type] = each_lane<u32, T, T>([](T a, T b) { return a != b; });
    table["setp.ltu" + type] = each_lane<u32, T, T>([](T a, T b) { return !(a >= b); });
    table["setp.leu" + type] = each_lane<u32, T, T>([](T a, T b) { return !(a > b); });
    table["setp.gtu" + type] = each_lane<u32, T, T>([](T a, T b) { return !(a <= b); });
    table["setp.geu" + type] = each_lane<u32, T, T>([](T a, T b) { return !(a < b); });
    table["setp.num" + type] = each_lane<u32, T, T>([](T a, T b) { return !is_nan(a) && !is_nan(b); });
    table["setp.nan" + type] = each_lane<u32, T, T>([](T a, T b) { return is_nan(a) || is_nan(b); });
  });
  table["mov.pred"] = each_lane<u32, u32>([](u32 a) { return a; });
  for (const char* name : {"cvta.local.u64", "cvta.to.local.u64", "cvta.global.u64", "cvta.to.global.u64"})
    table[name] = table["mov.u64"];
}

}  // namespace

void add_arithmetic(Table& table) {
  add_integers(table);
  add_floats(table);
  add_comparisons(table);
}

}  // namespace simulated_gpu
