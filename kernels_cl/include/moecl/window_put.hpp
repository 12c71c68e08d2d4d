#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// MC2's exchange as kernels that store rows straight into the windows of R ranks, which they reach by address, signal
/// when all of them are there, and wait for what the others put. A window has a slab of `capacity` tokens for each
/// rank: the place of rank r's token t is r * capacity + t, whoever's window it is. Only rows that somebody needs
/// travel.
///
/// A window of any rank begins with a signal word of each rank, i32[R], which every step adds `step_signal` to.
/// Where windows are of other devices, these must be NVIDIA's: stores and signals are ordered for the whole system.
namespace moecl::window_put {

/// The windows of all ranks, as this rank's kernels reach them, and what stands where in each of them.
struct Windows {
  TensorView addresses;                      ///< Shape: [R] i64, from `Address`
  std::int32_t rank = 0;                     ///< this one
  std::int32_t step = 0;                     ///< of these windows, from 1: what its signals say is there
  std::int64_t capacity = 0;                 ///< tokens of a slab
  std::uint64_t codes_at = 0, scale_at = 0;  ///< bytes into a window: [R * capacity] rows, and their scales
  /// How often the others' signals are looked at, at most. 0: nobody waits here, what comes next must be made to wait
  std::uint64_t patience = 0;
  TensorView late;   ///< optional FaultWord, Shape: [4] i32: peer_late where one did not come
  TensorView fault;  ///< optional: the same for the caller, and what is wrong with the operands
};

/// A rank's tokens to the owners of their experts, each once, and its ids and weights to everybody; ids are -1 where it
/// has no token. Ranks own linear runs of the experts, the first of them one more where that does not come out even.
struct Dispatch {
  TensorView ids;                              ///< Shape: [T, K] i32
  TensorView weights;                          ///< optional. Shape: [T, K] f32
  TensorView codes;                            ///< Shape: [T, H], of any type
  TensorView scale;                            ///< optional. Shape: [T] or [T, G]
  std::int32_t first_expert = 0, experts = 1;  ///< ids of all ranks' experts; others are sent to nobody
  bool sums = false;                           ///< what will come back is a sum of each rank, not each slot's row
  TensorView return_rows;                      ///< out. Shape: [T * K] i32: see window_slots::TokenReturnRows
  std::uint64_t ids_at = 0, weights_at = 0;    ///< bytes into a window: [R * capacity, K]
  Windows to;
};

/// Rows of the received slots back to the ranks of their slabs, to R * capacity * K places of a window.
struct Combine {
  TensorView slot_rows;    ///< Shape: [R * capacity * K] i32: the row of each slot; negative for experts of others
  std::int32_t top_k = 1;  ///< K
  TensorView codes;        ///< Shape: [rows, H], of any type
  TensorView scale;        ///< optional. Shape: [rows] or [rows, G]
  Windows to;
  /// The rows are of the received tokens, R * capacity of them; those of tokens that have any row go to as many places
  bool of_tokens = false;
};

/// Weighted sums of the received tokens' rows back, to R * capacity places; of tokens that have any row here. Sums as
/// combine's, bit for bit.
struct Sum {
  TensorView slot_rows;    ///< Shape: [R * capacity * K] i32, as above
  TensorView weights;      ///< optional. Shape: [R * capacity, K] f32; absent: 1
  std::int32_t top_k = 1;  ///< K
  TensorView rows;         ///< Shape: [rows, H] f32
  Windows to;
};

/// addresses[rank] = where `memory` begins, for kernels of this device.
struct Address {
  BufferView memory;
  std::int32_t rank = 0;
  TensorView addresses;  ///< out. Shape: [R] i64
};

/// Windows that a launch can write to.
inline constexpr std::int64_t most_ranks = 64;
/// More than there are work-groups in a launch.
inline constexpr std::int32_t step_signal = 1 << 16;

/// Why this cannot run; empty when it can.
std::string reject(const Dispatch& args);
std::string reject(const Combine& args);
std::string reject(const Sum& args);
std::string reject(const Address& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. With `patience` it keeps a work-group busy until the signals are there, so what brings them must
///         be able to run beside it
void enqueue(StreamView stream, const Dispatch& args, Submit submit = {});
void enqueue(StreamView stream, const Combine& args, Submit submit = {});
void enqueue(StreamView stream, const Sum& args, Submit submit = {});
void enqueue(StreamView stream, const Address& args, Submit submit = {});
/// As if every rank needed all rows.
OperatorCost cost(const Dispatch& args);
OperatorCost cost(const Combine& args);
OperatorCost cost(const Sum& args);

}  // namespace moecl::window_put
