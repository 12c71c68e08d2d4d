#pragma once
// What the machine can do at best, measured in this process: the roof that benchmarks are compared with.
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>

#include <cstdint>

namespace moecl::bench {

enum class Arithmetic : std::uint8_t { f32, bf16, int8 };

/// What an operator's time is bound by.
struct Bound {
  Arithmetic arithmetic = Arithmetic::f32;
  bool reads = false;  ///< nearly all its traffic is reading; else it writes as well
};

/// Rates a second; 0: not measured on such a device.
struct Roof {
  double f32 = 0, bf16 = 0, int8 = 0;  ///< operations, a multiply-add counts two
  double f32_one_unit = 0;             ///< of a single compute unit of a CPU
  double read = 0, copy = 0;           ///< bytes; copy counts those read and those written
  /// All units of a CPU together reach much less than one times their number: its cores are shared with others.
  bool slow_mode = false;

  /// The least time for that work; 0 where the rate is not known.
  double seconds(const OperatorCost& cost, Bound bound) const;
};

/// Of stream()'s device, measured at the first call.
const Roof& roof();
/// Measures f32 again: whether the machine is in a slow mode now.
bool slow_now();

/// Peaks of the host on all its threads, by the best instructions that the device takes there; 0 without any. Exact for
/// all codes of i8.
double host_int8_peak(const DeviceCaps& caps);
double host_bf16_peak(const DeviceCaps& caps);

}  // namespace moecl::bench
