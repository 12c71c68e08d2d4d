#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// A cache of expert weights: host memory holds the weights of all experts, a few slots of device memory those of some.
/// Kernels decide which experts to fetch and which to evict, and copy the weights; the host never reads the decisions.
namespace moecl::expert_slots {

/// How an expert's priority is made. The expert of least priority is evicted; on a tie, the one in the lower slot.
enum class Policy : std::uint8_t {
  lru,          ///< priority: the last pass that used the expert
  least_stale,  ///< priority: the sum of its uses; each pass multiplies the earlier ones by `fading`
  fixed         ///< priority: as the caller set it, such as a recorded load
};

/// Each expert of [first_expert, first_expert + experts) that has rows but no slot takes an empty slot, or else that of
/// an expert without rows in this claim. If fewer slots than experts with rows exist, the last experts get none.
struct Claim {
  TensorView row_ends;    ///< Shape: [E] i32, cumulative
  TensorView slots;       ///< in/out. Shape: [E] i32: the slot of each expert; -1: none
  TensorView holders;     ///< in/out. Shape: [S] i32: the expert in each slot; -1: none
  TensorView priorities;  ///< in/out. Shape: [E] i32: lru: pass numbers; otherwise the bits of floats, not negative
  TensorView fetches;     ///< out. Shape: [1 + 2 S] i32: the number of fetches, then an (expert, slot) pair for each
  /// in/out. Shape: [5] i64: hits (experts with rows that had a slot), misses (that had none), passes, experts that
  /// foreseen claims fetched, and the hits due to such a fetch
  TensorView counters;
  TensorView awaited;  ///< in/out. Shape: [S] i32: 1 where a foreseen claim gave the slot and no pass has used it yet
  std::int32_t first_expert = 0, experts = 0;
  Policy policy = Policy::lru;
  float fading = 0.9F;
  bool new_pass = true;  ///< false: other experts of the same pass were claimed before
  /// Slots that may be taken: `slot_count` from `first_slot` on; 0: all from there on. An expert with rows that has
  /// another slot is fetched anew, into one of these
  std::int32_t first_slot = 0, slot_count = 0;
  bool foreseen = false;  ///< true: claims for a later pass. It is counted apart, and priorities stay
};

/// to[slot] = from[expert] for each fetch.
struct Fetch {
  TensorView from;        ///< Shape: [E, bytes] u8: each expert's weights, in memory of the device or of the host
  TensorView to;          ///< out. Shape: [S, bytes] u8
  TensorView fetches;     ///< Shape: [1 + 2 S] i32, as Claim gives it
  std::int64_t most = 0;  ///< the largest possible number of fetches. Range: [1, S]
};

/// Why this cannot run; empty when it can.
std::string reject(const Claim& args);
std::string reject(const Fetch& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel
void enqueue(StreamView stream, const Claim& args, Submit submit = {});
void enqueue(StreamView stream, const Fetch& args, Submit submit = {});
OperatorCost cost(const Claim& args);
/// Counts `most` fetches.
OperatorCost cost(const Fetch& args);

}  // namespace moecl::expert_slots
