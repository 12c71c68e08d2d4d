#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Experts whose weights stand in host memory take turns in a few slots of device memory. The device itself decides who
/// comes and who goes, and copies; the host never looks.
namespace moecl::expert_slots {

/// Who gives its slot away: the expert of least priority, of equal ones the lower slot.
enum class Policy : std::uint8_t {
  lru,          ///< priority: the pass that used it last
  least_stale,  ///< its uses, each worth `fading` of itself a pass later
  fixed         ///< as it was set, such as the load of a record
};

/// Experts of [first_expert, first_expert + experts) that have rows and no slot take those of experts that have none
/// here. There should be as many slots as experts with rows: the last of more get none.
struct Claim {
  TensorView row_ends;    ///< Shape: [E] i32, cumulative
  TensorView slots;       ///< in/out. Shape: [E] i32: the slot of each expert; -1: none
  TensorView holders;     ///< in/out. Shape: [S] i32: the expert in each slot; -1: none
  TensorView priorities;  ///< in/out. Shape: [E] i32: of lru passes, of others bits of floats that are not negative
  TensorView fetches;     ///< out. Shape: [1 + 2 S] i32: how many are missing, then an expert and its slot each
  /// in/out. Shape: [5] i64: experts with rows that had a slot, that had none, passes; experts that foreseen claims
  /// fetched, and those of the first that had a slot by one
  TensorView counters;
  TensorView awaited;  ///< in/out. Shape: [S] i32: 1 where a foreseen claim gave the slot, and no pass has used it yet
  std::int32_t first_expert = 0, experts = 0;
  Policy policy = Policy::lru;
  float fading = 0.9F;
  bool new_pass = true;  ///< false: other experts of the same pass came before
  /// Slots that may be taken, from this one: who is in another one comes anew. 0: all from it on
  std::int32_t first_slot = 0, slot_count = 0;
  bool foreseen = false;  ///< for a pass to come: it counts apart, and priorities stay
};

/// to[slot] = from[expert] for each fetch.
struct Fetch {
  TensorView from;        ///< Shape: [E, bytes] u8: of each expert, in memory of the device or of the host
  TensorView to;          ///< out. Shape: [S, bytes] u8
  TensorView fetches;     ///< Shape: [1 + 2 S] i32, as Claim gives it
  std::int64_t most = 0;  ///< fetches there may be. Range: [1, S]
};

/// Why this cannot run; empty when it can.
std::string reject(const Claim& args);
std::string reject(const Fetch& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel
void enqueue(StreamView stream, const Claim& args, Submit submit = {});
void enqueue(StreamView stream, const Fetch& args, Submit submit = {});
OperatorCost cost(const Claim& args);
/// Of all fetches that there may be.
OperatorCost cost(const Fetch& args);

}  // namespace moecl::expert_slots
