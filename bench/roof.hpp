#pragma once
// The machine's best rates, measured in this process: the roof that benchmarks are compared with.
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>

#include <cstdint>

namespace moecl::bench {

enum class Arithmetic : std::uint8_t { f32, bf16, int8 };

/// What an operator's time is bound by.
struct Bound {
  Arithmetic arithmetic = Arithmetic::f32;
  bool reads = false;  ///< nearly all traffic is reads; else also writes
};

/// Rates per second; 0: not measured on such a device.
struct Roof {
  double f32 = 0, bf16 = 0, int8 = 0;  ///< operations; a multiply-add counts as two
  double f32_one_unit = 0;             ///< of a single compute unit of a CPU
  double read = 0, copy = 0;           ///< bytes; copy counts the bytes read and the bytes written
  /// All units of a CPU together reach much less than their number times one unit's rate: others use its cores too.
  bool slow_mode = false;

  /// The least time for that work; 0 if the rate is unknown.
  double seconds(const OperatorCost& cost, Bound bound) const;
};

/// The roof of stream()'s device, measured at the first call.
const Roof& roof();
/// Measures f32 again, to tell whether the machine is in a slow mode now.
bool slow_now();

/// Peak rates of the host with all its threads, by the best instructions that the device supports there; 0 without any.
/// The int8 products are exact for all codes of i8.
double host_int8_peak(const DeviceCaps& caps);
double host_bf16_peak(const DeviceCaps& caps);

}  // namespace moecl::bench
