#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Where rows stand in windows of fixed capacity: one slab of `capacity` rows for each of the R ranks, filled from the
/// front; rows past the capacity are left out. Indices only, from row ends on the device, so that no host ever needs
/// the counts.
///
/// Rank r owns the experts of one linear run; the E % R first ranks have one more (ExpertMap). Row ends are those of a
/// sort by global expert, so the rows of a rank's experts are neighbours.
/// Source: the exchange windows of npu_moe_distribute_dispatch
namespace moecl::window_slots {

/// What goes into the sender's window: slots[d * capacity + i] is the slot of the i-th row for rank d, or -1.
struct Outgoing {
  TensorView row_ends;      ///< Shape: [E] i32, of this rank's slots sorted by global expert
  TensorView sorted_slots;  ///< Shape: [S] i32
  std::int32_t ranks = 1;   ///< R
  TensorView slots;         ///< out. Shape: [R * capacity] i32
};

/// What a window that was received holds: ids[r * capacity + i] is the local expert of the i-th row from rank r, or -1.
/// A stable expert_sort of them gives the rows in the order expert, source rank, token.
struct Incoming {
  TensorView row_ends;    ///< Shape: [R, E] i32: every rank's
  std::int32_t rank = 0;  ///< who received
  TensorView ids;         ///< out. Shape: [R * capacity, 1] i32
};

/// Where the rows of this rank's own slots come back to: rows[slot] = d * capacity + i as in Outgoing, or -1.
struct Home {
  TensorView row_ends;   ///< Shape: [E] i32
  TensorView slot_rows;  ///< Shape: [S] i32, of the same sort
  std::int32_t ranks = 1;
  std::int64_t capacity = 0;
  TensorView rows;  ///< out. Shape: [S] i32
};

/// Why this cannot run; empty when it can.
std::string reject(const Outgoing& args);
std::string reject(const Incoming& args);
std::string reject(const Home& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: no elements enqueue nothing
void enqueue(StreamView stream, const Outgoing& args, Submit submit = {});
void enqueue(StreamView stream, const Incoming& args, Submit submit = {});
void enqueue(StreamView stream, const Home& args, Submit submit = {});
OperatorCost cost(const Outgoing& args);
OperatorCost cost(const Incoming& args);
OperatorCost cost(const Home& args);

}  // namespace moecl::window_slots
