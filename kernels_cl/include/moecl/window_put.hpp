#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// MC2's exchange by kernels. A kernel stores rows straight into the windows of R ranks, which it reaches by address.
/// It signals when all its rows are stored, and waits for the rows of the other ranks. Every window has a slab of
/// `capacity` tokens for each rank: the token t of rank r stands at place r * capacity + t in every window. Only rows
/// that a rank needs travel.
///
/// Every window begins with a signal word for each rank, i32[R]. Each step of a rank adds `step_signal` to its word. If
/// windows are on other devices, these must be NVIDIA's: stores and signals are ordered for the whole system.
namespace moecl::window_put {

/// The windows of all ranks, as this rank's kernels reach them, and what stands where in each of them.
struct Windows {
  TensorView addresses;                      ///< Shape: [R] i64, written by `Address`
  std::int32_t rank = 0;                     ///< this rank
  std::int32_t step = 0;                     ///< counted from 1 in these windows; its signal is step * step_signal
  std::int64_t capacity = 0;                 ///< tokens of a slab
  std::uint64_t codes_at = 0, scale_at = 0;  ///< byte offsets in a window: [R * capacity] rows, and their scales
  /// Maximum number of polls of a rank's signal. 0: the kernel does not wait; the commands after it must wait
  std::uint64_t patience = 0;
  TensorView late;   ///< optional FaultWord. Shape: [4] i32: peer_late if a signal did not come
  TensorView fault;  ///< optional, the caller's: the same, and faults of the operands
};

/// Sends a rank's tokens to the owners of their experts, once to each owner, and its ids and weights to all ranks. Ids
/// are -1 at places without a token. Each rank owns a run of consecutive experts; the first ranks own one more if the
/// experts do not divide evenly.
struct Dispatch {
  TensorView ids;                              ///< Shape: [T, K] i32
  TensorView weights;                          ///< optional. Shape: [T, K] f32
  TensorView codes;                            ///< Shape: [T, H], of any type
  TensorView scale;                            ///< optional. Shape: [T] or [T, G]
  std::int32_t first_expert = 0, experts = 1;  ///< ids of all ranks' experts; other ids have no receiver
  bool sums = false;                           ///< each rank returns one sum per token, not a row per slot
  TensorView return_rows;                      ///< out. Shape: [T * K] i32: see window_slots::TokenReturnRows
  std::uint64_t ids_at = 0, weights_at = 0;    ///< byte offsets in a window: [R * capacity, K]
  Windows to;
};

/// Sends the rows of the received slots back to the ranks of their slabs, to R * capacity * K places of a window.
struct Combine {
  TensorView slot_rows;    ///< Shape: [R * capacity * K] i32: the row of each slot; negative: no row of this rank
  std::int32_t top_k = 1;  ///< K
  TensorView codes;        ///< Shape: [rows, H], of any type
  TensorView scale;        ///< optional. Shape: [rows] or [rows, G]
  Windows to;
  /// `codes` has one row per received token, R * capacity rows, and a window has as many places. Only tokens travel
  /// that have a row in `slot_rows`
  bool of_tokens = false;
};

/// Sends back the weighted sum of the rows of each received token that has a row here, to R * capacity places of a
/// window. The sums are those of combine, bit for bit.
struct Sum {
  TensorView slot_rows;    ///< Shape: [R * capacity * K] i32, as above
  TensorView weights;      ///< optional. Shape: [R * capacity, K] f32; absent: 1
  std::int32_t top_k = 1;  ///< K
  TensorView rows;         ///< Shape: [rows, H] f32
  Windows to;
};

/// addresses[rank] = the address of the first byte of `memory`, for kernels of this device.
struct Address {
  BufferView memory;
  std::int32_t rank = 0;
  TensorView addresses;  ///< out. Shape: [R] i64
};

/// Maximum number of windows that a launch can write to.
inline constexpr std::int64_t most_ranks = 64;
/// What a step adds to a signal word. More than the work-groups of a launch.
inline constexpr std::int32_t step_signal = 1 << 16;

/// Why `args` cannot run; empty when they can.
std::string reject(const Dispatch& args);
std::string reject(const Combine& args);
std::string reject(const Sum& args);
std::string reject(const Address& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. With `patience` > 0 it occupies a work-group until the signals are there, so the kernels that
///         signal must be able to run at the same time
void enqueue(StreamView stream, const Dispatch& args, Submit submit = {});
void enqueue(StreamView stream, const Combine& args, Submit submit = {});
void enqueue(StreamView stream, const Sum& args, Submit submit = {});
void enqueue(StreamView stream, const Address& args, Submit submit = {});
/// As if every rank needed all rows.
OperatorCost cost(const Dispatch& args);
OperatorCost cost(const Combine& args);
OperatorCost cost(const Sum& args);

}  // namespace moecl::window_put
