#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Maps the experts that tokens have chosen to places. An expert may have replicas at several places:
/// physical[t, k] = places[e, hash(first_token + t) % replicas[e]] with e = ids[t, k].
///
/// hash(token) = token * 2654435769 mod 2^32. All K slots of a token share it, and it depends on nothing else. So a
/// token takes the same replicas in every run, however the tokens are distributed over the ranks.
/// Source: replica choice of vLLM's EPLB
namespace moecl::physical_experts {

struct Args {
  TensorView ids;       ///< Shape: [T, K] i32. Range: [0, E), -1 is "no expert"; others give -1 and set the fault word
  TensorView places;    ///< Shape: [E, most replicas] i32: the places of each expert, then padding that is not read
  TensorView replicas;  ///< Shape: [E] i32: how many places each expert has; 0 gives -1
  std::int64_t first_token = 0;  ///< index of this call's first token among all tokens
  TensorView physical;           ///< out. Shape: [T, K] i32
  TensorView fault;              ///< optional in/out. Shape: [4] i32, see fault.hpp
  /// optional, both or neither. Shape: [T, K] f32. `weights` are those of the choices. `placed_weights` (out) is 0 for
  /// experts that are gone, see `expected`. The token's other weights are multiplied by one factor, so that their sum
  /// is what it was
  TensorView weights = {}, placed_weights = {};
  std::int32_t expected = 0;  ///< experts [0, expected) should have places: one without places is gone
  bool refuses = false;       ///< a slot that chooses a gone expert sets the fault word
};

/// Why `args` cannot run; empty when they can.
std::string reject(const Args& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::physical_experts
