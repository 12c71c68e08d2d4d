#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// MC2's exchange as kernels that store rows straight into the windows of R ranks, which they reach by address, and
/// signal when all of them are there. Slabs and places are those of window_slots, but only rows that exist travel.
///
/// A window of any rank begins with a signal word of each rank, i32[R]; a signal is the number of the step it ends.
/// Where windows are of other devices, these must be NVIDIA's: stores and signals are ordered for the whole system.
namespace moecl::window_put {

/// The windows of all ranks, as this rank's kernels reach them, and what stands where in each of them.
struct Windows {
  TensorView addresses;                      ///< Shape: [R] i64, from `Address`
  TensorView counter;                        ///< Shape: [1] i32: zero before the first launch; of one queue
  std::int32_t rank = 0;                     ///< this one
  std::int32_t step = 0;                     ///< what its signals become; one more with each use of the windows
  std::int64_t capacity = 0;                 ///< rows of a slab
  std::uint64_t codes_at = 0, scale_at = 0;  ///< bytes into a window: [R * capacity] rows, and their scales
};

/// A rank's tokens to the owners of their experts, and its row ends to everybody.
struct Dispatch {
  TensorView row_ends;        ///< Shape: [E] i32, of this rank's slots sorted by global expert
  TensorView sorted_slots;    ///< Shape: [S] i32
  std::int32_t divisor = 1;   ///< slots of a token
  TensorView codes;           ///< Shape: [T, H], of any type
  TensorView scale;           ///< optional. Shape: [T] or [T, G]
  std::uint64_t ends_at = 0;  ///< bytes into a window: [R, E] i32
  Windows to;
};

/// Rows of the received tokens back to the ranks of their slabs.
struct Combine {
  TensorView row_ends;      ///< Shape: [local experts] i32, of the sort of what was received
  TensorView sorted_slots;  ///< Shape: [R * capacity] i32: row j stood at that place of this rank's window
  TensorView codes;         ///< Shape: [R * capacity, H], of any type; rows past the last are not read
  TensorView scale;         ///< optional. Shape: [R * capacity] or [R * capacity, G]
  Windows to;
};

/// What comes next on the stream sees what every rank has put in this step.
struct Wait {
  TensorView signals;  ///< Shape: [R] i32, the begin of this rank's window
  std::int32_t step = 0;
  std::uint64_t patience = 0;  ///< how often a signal is looked at, at most
  TensorView late;             ///< FaultWord, Shape: [4] i32: FaultCode::peer_late where one did not come
  TensorView fault;            ///< optional: another such word
};

/// addresses[rank] = where `memory` begins, for kernels of this device.
struct Address {
  BufferView memory;
  std::int32_t rank = 0;
  TensorView addresses;  ///< out. Shape: [R] i64
};

inline constexpr std::int64_t most_ranks = 64;

/// Why this cannot run; empty when it can.
std::string reject(const Dispatch& args);
std::string reject(const Combine& args);
std::string reject(const Wait& args);
std::string reject(const Address& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel; that of Wait keeps a work-group busy until the signals are there, so what brings them must be
///         able to run beside it
void enqueue(StreamView stream, const Dispatch& args, Submit submit = {});
void enqueue(StreamView stream, const Combine& args, Submit submit = {});
void enqueue(StreamView stream, const Wait& args, Submit submit = {});
void enqueue(StreamView stream, const Address& args, Submit submit = {});
/// Of all rows there may be.
OperatorCost cost(const Dispatch& args);
OperatorCost cost(const Combine& args);

}  // namespace moecl::window_put
